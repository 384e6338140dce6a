"""Parts of the page about all members: summary, the table of numbers, configuration differences."""

import math
from collections.abc import Sequence

from markupsafe import Markup

from evals.estimate.effective_context import MEASURED, NOT_LEARNED, Estimate
from reporting.labels import describe_seeds, flatten
from reporting.members import Member, describe_intervals, learned, tasks
from reporting.page import NONE, Folded, Part, Table, format_captions
from theory.predictions import HORIZON


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
    ends = [based[0], based[-1]] if len(based) > 1 else based
    findings = Markup("; ").join(_finding(m.label, m.estimates[task]) for m in ends)
    return Markup("On {}, {}.").format(task, findings)


def _finding(label: str, estimate: Estimate) -> Markup:
    before, after = "recalls answers only", " tokens back"
    if estimate.verdict == NOT_LEARNED:
        before, after = "is", ""
    elif estimate.verdict == MEASURED:
        before = "recalls answers up to"
    elif estimate.verdict.startswith(">"):
        before, after = "recalls answers", " tokens back, beyond the longest distance tested"
    text = Markup("<strong>{}</strong> {} <strong>{}</strong>{} (accuracy: {})")
    return text.format(label, before, estimate, after, estimate.accuracies)


def numbers_table(members: Sequence[Member]) -> Table:
    """Return the leading task's measurements, predictions and other tasks of every member."""
    names = tasks(members)
    secondary = [name for name in names[1:] if learned(members, name)]
    lines, groups = [], {}
    for member in members:
        theory = member.theory
        groups = {f"measured: {name}": _estimate_cells(member, name) for name in names[:1]}
        forecast = member.forecasts.get(names[0]) if names else None
        groups["predicted (tokens)"] = {
            "forecast": str(forecast or NONE),
            "theory length": _format_tokens(theory.first_violation),
            "quarter period": _format_tokens(theory.quarter_period),
            "full period": _format_tokens(theory.full_period),
        }
        groups["effective context, other tasks"] = {
            name: f"{estimate}; {estimate.accuracies}"
            if (estimate := member.estimates.get(name))
            else "not evaluated"
            for name in secondary
        }
        cells = {"member": member.label}
        for group in groups.values():
            cells |= group
        lines.append((member.index, cells))
    # All members have the same columns.
    spans = [(name, len(group)) for name, group in groups.items() if group]
    return Table.from_cells(lines, caption=_numbers_caption(members), groups=spans)


def _numbers_caption(members: Sequence[Member]) -> str:
    estimates = [estimate for member in members for estimate in member.estimates.values()]
    unlearned = [name for name in tasks(members)[1:] if not learned(members, name)]
    documents = min((estimate.num_documents for estimate in estimates), default=0)
    captions = format_captions(
        "numbers",
        over=describe_intervals(members),
        documents=_plural(documents, "document") if estimates else "",
        tasks=", ".join(unlearned),
        horizon=f"{HORIZON:,}",
    )
    return captions["caption"]


def _estimate_cells(member: Member, task: str) -> dict[str, str]:
    estimate, dip = member.estimates.get(task), NONE
    if estimate and estimate.dips:
        dip = f"{estimate.dip:.2f} at {estimate.dip_distance:.0f}, then {estimate.revival:.2f}"
    return {
        "effective context [95% CI]": str(estimate or member.diverged or "not evaluated"),
        "worst bin": estimate.worst_text if estimate else NONE,
        "mean": estimate.mean_text if estimate else NONE,
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
