"""Parts of the page about all members: summary, the table of numbers, configuration differences."""

from collections.abc import Sequence

from markupsafe import Markup

from evals.estimate.effective_context import (
    LOW_CEILING,
    MEASURED,
    NOT_LEARNED,
    UNDETERMINED,
    Estimate,
)
from reporting.labels import describe_seeds, flatten
from reporting.members import Member, tasks
from reporting.page import Folded, Part, Table


def facts(members: Sequence[Member]) -> list[str]:
    """Return the numbers of members and seeds, and the trained lengths."""
    lengths = sorted({member.trained_length for member in members})
    return [
        _plural(len(members), "member"),
        describe_seeds([run.config for member in members for run in member.runs]),
        f"context length {', '.join(f'{length:,}' for length in lengths)}",
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
    return Markup("Trained at a context length of {} tokens, {} (task {}).").format(
        lengths, findings, task
    )


def _without_base(member: Member) -> list[str]:
    return [part for part in member.label.split(",") if not part.startswith("base=")]


def _finding(label: str, estimate: Estimate) -> Markup:
    note, distance = "", f"{estimate.l50:.3g}"
    ends = f"{estimate.ci_low:.3g} to {estimate.ci_high:.3g}".replace(
        "inf", f"> {estimate.longest}"
    )
    is_kv = estimate.task.startswith("kv")
    recalls = "recalls a value among random keys" if is_kv else "recalls text"
    if estimate.verdict == NOT_LEARNED:
        text = "does not learn the task"
    elif estimate.verdict == LOW_CEILING:
        text = "fails too often at short distances for an effective context"
        note = f"right answers there: {estimate.ceiling:.2f}; "
    elif not estimate.has_l50:
        text = "was asked too few questions for an effective context"
        note = f"evaluate {estimate.documents_needed:,} documents; "
    elif estimate.verdict == UNDETERMINED:
        text, distance = f"{recalls} up to a distance <strong>between {{}}</strong> tokens", ends
        note = "more documents would tell where; "
    elif estimate.verdict == MEASURED:
        text = f"{recalls} <strong>up to {{}} tokens back</strong>"
        note = f"95% interval {ends}; "
    else:
        text = f"{recalls} at every distance tested, <strong>up to {{}} tokens back</strong>"
    note += f"mean accuracy {estimate.mean_accuracy:.2f}"
    note += "; accuracy recovers farther away" if estimate.dips else ""
    subject = Markup("a model with <strong>{}</strong> ").format(label)
    return subject + Markup(text).format(distance) + f" ({note})"


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
