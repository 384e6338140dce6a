"""What the page says of all members together: the answer in short, the numbers, what differs."""

import math
from collections.abc import Sequence

from evals.estimate.effective_context import MEASURED, NOT_LEARNED, Estimate
from reporting.labels import flatten, seeds_said
from reporting.members import Member, intervals_over, learned, tasks
from reporting.page import NONE, Finding, Folded, Part, Table, words
from theory.predictions import HORIZON


def facts(members: Sequence[Member]) -> list[str]:
    """How many members and seeds, and what they were trained on."""
    lengths = sorted({member.trained_length for member in members})
    return [
        _plural(len(members), "member"),
        seeds_said([run.config for member in members for run in member.runs]),
        f"trained on {', '.join(f'{length:,}' for length in lengths)} tokens",
    ]


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def findings(members: Sequence[Member]) -> tuple[str, list[Finding]]:
    """How the answer in short begins, and what it says of the least and the greatest base."""
    task = next(iter(tasks(members)), None)
    measured = [member for member in members if task in member.estimates]
    if task is None or not measured:
        asked = any(member.own for member in members)
        return "No retrieval was asked for." if asked else "Nothing has been measured yet.", []
    based = [member for member in measured if member.base is not None] or measured
    ends = [based[0], based[-1]] if len(based) > 1 else based
    return f"On {task},", [_finding(member.label, member.estimates[task]) for member in ends]


def _finding(label: str, estimate: Estimate) -> Finding:
    before, after = "finds answers only", " tokens back"
    if estimate.verdict == NOT_LEARNED:
        before, after = "is", ""
    elif estimate.verdict == MEASURED:
        before = "finds answers up to"
    elif estimate.verdict.startswith(">"):
        before, after = "finds answers", " tokens back, as far as could be asked"
    after += f" (accuracy: {estimate.accuracies})"
    return Finding(label=label, before=before, value=str(estimate), after=after)


def numbers(members: Sequence[Member]) -> Table:
    """Of every member: what the leading task measured, what theory says, and the other tasks."""
    names = tasks(members)
    others = [name for name in names[1:] if learned(members, name)]
    lines, groups = [], {}
    for member in members:
        theory = member.theory
        groups = {f"measured: {name}": _measured(member, name) for name in names[:1]}
        made = member.forecasts.get(names[0]) if names else None
        groups["predicted (tokens)"] = {
            "forecast": str(made or NONE),
            "theory length": _tokens(theory.first_violation),
            "quarter period": _tokens(theory.quarter_period),
            "full period": _tokens(theory.full_period),
        }
        groups["effective context, other tasks"] = {
            name: f"{found}; {found.accuracies}"
            if (found := member.estimates.get(name))
            else "not evaluated"
            for name in others
        }
        cells = {"member": member.label}
        for group in groups.values():
            cells |= group
        lines.append((member.index, cells))
    # Every member has the same columns.
    spans = [(name, len(group)) for name, group in groups.items() if group]
    return Table.of(lines, caption=_caption(members), groups=spans)


def _caption(members: Sequence[Member]) -> str:
    estimates = [estimate for member in members for estimate in member.estimates.values()]
    unlearned = [name for name in tasks(members)[1:] if not learned(members, name)]
    said = words(
        "numbers_said",
        over=intervals_over(members),
        documents=_plural(min((e.num_documents for e in estimates), default=0), "document"),
        tasks=", ".join(unlearned),
    )
    measured = said["measured"] if estimates else ""
    not_learned = said["not_learned"] if unlearned else ""
    return words("numbers", measured=measured, not_learned=not_learned, horizon=HORIZON)["caption"]


def _measured(member: Member, task: str) -> dict[str, str]:
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


def _tokens(count: float | None) -> str:
    if count is None:
        return "none"
    return "∞" if math.isinf(count) else f"{count:,.0f}"


def differences(members: Sequence[Member]) -> list[Part]:
    """The fields of the configuration that differ, by member; folded, those that do not."""
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
    nothing = "" if different else "Nothing: there is one member."
    return [
        Table.of(lines if different else [], caption=nothing, wraps=True),
        Folded(
            summary=f"Configuration shared by all members ({len(shared)} fields)",
            part=Table.of(shared, wraps=True),
        ),
    ]
