"""Parts of the page about all members: summary, the table of numbers, configuration differences."""

from collections.abc import Sequence

from markupsafe import Markup

from ropewalk.experiment.dotted import flatten_values
from ropewalk.reporting.labels import describe_seeds
from ropewalk.reporting.members import Member, tasks
from ropewalk.reporting.page import Folded, Part, Table


def facts(members: Sequence[Member]) -> list[str]:
    """Return the numbers of members and seeds, and the trained lengths."""
    lengths = sorted({member.trained_length for member in members})
    return [
        f"{len(members):,} member{'s' * (len(members) > 1)}",
        describe_seeds([run.config for member in members for run in member.runs]),
        f"context length {', '.join(f'{length:,}' for length in lengths)}",
    ]


def summarize(members: Sequence[Member]) -> Markup:
    """Return the effective context of the smallest and the largest base, as markup."""
    task = next(iter(tasks(members)), "")
    measured = [member for member in members if task in member.estimates]
    if not measured:
        return Markup("No retrieval task has been evaluated, so there is no effective context.")
    based = [member for member in measured if member.base is not None] or measured
    finding = Markup("<strong>{}</strong>: {}, mean accuracy {:.2f}")
    findings = [
        finding.format(member.label, estimate, estimate.mean_accuracy)
        for member in dict.fromkeys([based[0], based[-1]])
        for estimate in [member.estimates[task]]
    ]
    return Markup("Effective context on {}, in tokens: {}.").format(
        task, Markup("; ").join(findings)
    )


def differences(members: Sequence[Member]) -> list[Part]:
    """Return the configuration fields that differ, by member, and the shared fields, collapsed."""
    settings = [flatten_values(member.config) for member in members]
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
