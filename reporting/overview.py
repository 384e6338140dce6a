"""Parts of the page about all members: summary, the table of numbers, configuration differences."""

import math
from collections.abc import Sequence

from markupsafe import Markup

from evals.estimate.effective_context import (
    LOW_CEILING,
    MEASURED,
    NOT_LEARNED,
    UNDETERMINED,
    Estimate,
)
from reporting.forecasts import HORIZON
from reporting.labels import describe_seeds, flatten
from reporting.members import Member, describe_intervals, learned, tasks
from reporting.page import NONE, Folded, Part, Table, format_captions


def facts(members: Sequence[Member]) -> list[str]:
    """Return the numbers of members and seeds, and the trained lengths."""
    lengths = sorted({member.trained_length for member in members})
    return [
        _plural(len(members), "member"),
        describe_seeds([run.config for member in members for run in member.runs]),
        f"trained on {', '.join(f'{length:,}' for length in lengths)} tokens",
    ]


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def summarize(members: Sequence[Member]) -> str:
    """Return the effective context at the smallest and largest base, as markup."""
    task = next(iter(tasks(members)), None)
    measured = [member for member in members if task in member.estimates]
    if task is None or not measured:
        evaluated = any(member.trained for member in members)
        return "No retrieval task was evaluated." if evaluated else "Nothing has been measured yet."
    based = [member for member in measured if member.base is not None] or measured
    # Two members that differ in the base only, if possible.
    alike = [member for member in based if _without_base(member) == _without_base(based[0])]
    ends = list(dict.fromkeys([based[0], (alike if len(alike) > 1 else based)[-1]]))
    lengths = " and ".join(f"{n:,}" for n in sorted({member.trained_length for member in ends}))
    findings = Markup("; ").join(_finding(m.label, m.estimates[task]) for m in ends)
    return Markup("Trained on rows of {} tokens, {} (task {}).").format(lengths, findings, task)


def _without_base(member: Member) -> list[str]:
    return [part for part in member.label.split(",") if not part.startswith("base=")]


def _finding(label: str, estimate: Estimate) -> Markup:
    note, distance = "", f"{estimate.l50:.3g}"
    ends = f"{estimate.ci_low:.3g} to {estimate.ci_high:.3g}".replace(
        "inf", f"> {estimate.longest}"
    )
    if estimate.verdict == NOT_LEARNED:
        text = "does not learn the task"
    elif estimate.verdict == LOW_CEILING:
        text = "fails too often at short distances for an effective context"
        note = f"right answers there: {estimate.ceiling:.2f}; "
    elif not estimate.has_l50:
        text = "was asked too few questions for an effective context"
        note = f"evaluate {estimate.documents_needed:,} documents; "
    elif estimate.verdict == UNDETERMINED:
        text, distance = "recalls text up to a distance <strong>between {}</strong> tokens", ends
        note = "more documents would tell where; "
    elif estimate.verdict == MEASURED:
        text = "recalls text <strong>up to {} tokens back</strong>"
        note = f"95% interval {ends}; "
    else:
        text = "recalls text at every distance tested, <strong>up to {} tokens back</strong>"
    note += f"mean accuracy {estimate.mean_accuracy:.2f}"
    note += "; accuracy recovers farther away" if estimate.dips else ""
    subject = Markup("a model with <strong>{}</strong> ").format(label)
    return subject + Markup(text).format(distance) + f" ({note})"


def numbers_tables(members: Sequence[Member]) -> list[Part]:
    """Return measurements of the leading task beside its predictions, and all else, collapsed."""
    names = tasks(members)
    secondary = [name for name in names[1:] if learned(members, name)]
    lines, more = [], []
    for member in members:
        estimate = member.estimates.get(names[0]) if names else None
        theory = member.theory
        effective = str(estimate or member.diverged or "not evaluated")
        cells = {
            "member": member.label,
            f"measured: {names[0]} [95% CI]" if names else "measured": effective,
            "D_H": str((names and member.forecasts.get(names[0])) or NONE),
            "theory length": _format_tokens(theory.first_violation),
            "mean accuracy": estimate.mean_text if estimate else NONE,
            "worst bin": estimate.worst_text if estimate else NONE,
        }
        lines.append((member.index, cells))
        cells = {"member": member.label} | _more_cells(estimate)
        cells["quarter period"] = _format_tokens(theory.quarter_period)
        cells["full period"] = _format_tokens(theory.full_period)
        for name in secondary:
            other = member.estimates.get(name)
            cells[name] = f"{other}; {other.accuracies}" if other else "not evaluated"
        more.append((member.index, cells))
    return [
        Table.from_cells(lines, caption=_caption("numbers", members)),
        Folded(
            summary="More columns: dips, L85, ceiling, periods, other tasks",
            part=Table.from_cells(more, caption=_caption("more_numbers", members)),
        ),
    ]


def _caption(name: str, members: Sequence[Member]) -> str:
    estimates = [estimate for member in members for estimate in member.estimates.values()]
    unlearned = [name for name in tasks(members)[1:] if not learned(members, name)]
    documents = min((estimate.num_documents for estimate in estimates), default=0)
    captions = format_captions(
        name,
        over=describe_intervals(members),
        documents=_plural(documents, "document") if estimates else "",
        tasks=", ".join(unlearned),
        horizon=f"{HORIZON:,}",
        learned=any(member.config.model.learned_frequencies for member in members),
    )
    return captions["caption"]


def _more_cells(estimate: Estimate | None) -> dict[str, str]:
    dip = NONE
    if estimate and estimate.dips:
        dip = f"{estimate.dip:.2f} at {estimate.dip_distance:.0f}, then {estimate.revival:.2f}"
    return {
        "dip": dip,
        "L85": estimate.l85_text if estimate else NONE,
        "ceiling": f"{estimate.ceiling:.2f}" if estimate else NONE,
    }


def _format_tokens(count: float | None) -> str:
    if count is None:
        return "none"
    return "∞" if math.isinf(count) else f"{count:,.0f}"


def differences(members: Sequence[Member]) -> list[Part]:
    """Return the configuration fields that differ, by member, and the shared fields, collapsed."""
    settings = [flatten(member.config) for member in members]
    fields = list(dict.fromkeys(field for setting in settings for field in setting))
    different = [f for f in fields if len({setting.get(f) for setting in settings}) > 1]
    shared = [
        (None, {"field": field, "value": settings[0][field]})
        for field in fields
        if field not in different
    ]
    lines = [
        (member.index, {"member": member.label, **{f: setting.get(f, "") for f in different}})
        for member, setting in zip(members, settings, strict=True)
    ]
    caption = "" if different else "No differences: there is one member."
    return [
        Table.from_cells(lines if different else [], caption=caption, wraps=True),
        Folded(
            summary=f"Configuration shared by all members ({len(shared)} fields)",
            part=Table.from_cells(shared, wraps=True),
        ),
    ]
