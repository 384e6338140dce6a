"""What the page says of all members together: the answer in short, the numbers, what differs."""

import math
from collections.abc import Sequence

from evals.estimate.effective_context import MEASURED, NOT_LEARNED, Estimate
from reporting.labels import flatten
from reporting.members import Member, learned, tasks
from reporting.page import Finding, Folded, Part, Table, words
from theory.predictions import HORIZON


def facts(members: Sequence[Member]) -> list[str]:
    """How many members and seeds, and what they were trained on."""
    seeds = max(len(member.runs) for member in members)
    lengths = sorted({member.trained_length for member in members})
    return [
        _plural(len(members), "member"),
        _plural(seeds, "seed"),
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
    return Finding(label=label, before=before, value=str(estimate), after=after)


def numbers(members: Sequence[Member]) -> Table:
    """Of every member: what the leading task measured, what theory says, and the other tasks."""
    names = tasks(members)
    lead, others = names[:1], [name for name in names[1:] if learned(members, name)]
    heads, groups = ["member"], []
    if lead:
        heads += ["effective context [95% CI]", "L85", "ceiling", "revival"]
        groups.append((f"measured: {lead[0]}", 4))
    heads += ["theory length", "quarter period", "full period", *others]
    groups.append(("predicted (tokens)", 3))
    if others:
        groups.append(("effective context, other tasks", len(others)))
    lines = []
    for member in members:
        theory = member.theory
        cells = [
            member.label,
            *(cell for name in lead for cell in _measured(member.estimates.get(name))),
            "none" if theory.first_violation is None else f"{theory.first_violation:,}",
            *map(_tokens, (theory.quarter_period, theory.full_period)),
            *(str(member.estimates.get(name, "not evaluated")) for name in others),
        ]
        lines.append((member.index, cells))
    return Table(heads=heads, lines=lines, groups=groups, caption=_caption(members))


def _caption(members: Sequence[Member]) -> str:
    estimates = [estimate for member in members for estimate in member.estimates.values()]
    unlearned = [name for name in tasks(members)[1:] if not learned(members, name)]
    said = words(
        "numbers_said",
        documents=_plural(min((e.num_documents for e in estimates), default=0), "document"),
        seeds=_plural(min((e.num_seeds for e in estimates), default=0), "seed"),
        tasks=", ".join(unlearned),
    )
    measured = said["measured"] if estimates else ""
    not_learned = said["not_learned"] if unlearned else ""
    return words("numbers", measured=measured, not_learned=not_learned, horizon=HORIZON)["caption"]


def _measured(estimate: Estimate | None) -> list[str]:
    if estimate is None:
        return ["not evaluated", "–", "–", "–"]
    revival = f"{estimate.revival:.2f} at {estimate.revival_distance:.0f}"
    return [
        str(estimate),
        estimate.l85_text,
        f"{estimate.ceiling:.2f}",
        "–" if math.isnan(estimate.revival) else revival,
    ]


def _tokens(count: float) -> str:
    return "∞" if math.isinf(count) else f"{count:,.0f}"


def differences(members: Sequence[Member]) -> list[Part]:
    """The fields of the configuration that differ, by member; folded, those that do not."""
    settings = [flatten(member.config) for member in members]
    fields = list(dict.fromkeys(field for setting in settings for field in setting))
    different = [f for f in fields if len({setting.get(f) for setting in settings}) > 1]
    shared = [(None, (field, settings[0][field])) for field in fields if field not in different]
    lines = [
        (member.index, [member.label, *(setting.get(field, "") for field in different)])
        for member, setting in zip(members, settings, strict=True)
    ]
    heads = ["member", *different] if different else []
    nothing = "" if different else "Nothing: there is one member."
    return [
        Table(heads=heads, lines=lines if different else [], caption=nothing, wraps=True),
        Folded(
            summary=f"Configuration shared by all members ({len(shared)} fields)",
            part=Table(heads=["field", "value"], lines=shared, wraps=True),
        ),
    ]
