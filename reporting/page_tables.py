"""The page's tables, one a question; a cell says as much as its rows can."""

from collections.abc import Iterable, Sequence

import evals
from evals import rows as rows_lib
from evals.estimate import summaries, thresholds
from evals.estimate.summaries import MeanWithError
from evals.rows import Rows
from reporting import predictors
from reporting.members import Member, learned, task_order
from reporting.page import Table, words
from reporting.tables import likelihoods

NONE = "–"


def trained_lengths(members: Sequence[Member], task: str) -> Table:
    """Effective context by variant and trained length."""
    series = predictors.by_trained_length(members, task)
    lengths = sorted({member.trained_length for each in series for member in each})
    rows = []
    for each in series:
        cells = {member.trained_length: str(member.estimates[task]) for member in each}
        rows.append((None, [predictors.name(each), *(cells.get(n, NONE) for n in lengths)]))
    return Table(
        heads=["variant", *(f"trained on {length:,}" for length in lengths)],
        lines=rows,
        caption=words("trained_lengths", task=task)["caption"],
    )


def rules(members: Sequence[Member]) -> dict[str, Table]:
    """Effective context beside what other rules make of the same rows, by task learned."""
    return {
        task: _rules(members, task)
        for task in task_order(_asked(members, "retrieval", "score"))
        if learned(members, task) or _passes(members, task)
    }


def _rules(members: Sequence[Member], task: str) -> Table:
    retrieval = evals.parse(task).kind == "retrieval"
    shown, lengths = [], set()
    for member in members:
        rows = _rows(member, task)
        if not len(rows["task"]):
            continue
        lengths |= set(rows["length"].tolist())
        cells = []
        if retrieval:
            estimate = member.estimates[task]
            cells += [str(estimate), estimate.l85_text, f"{thresholds.visual_edge(rows):,.0f}"]
        relative = thresholds.effective_length(rows)
        # At a single length every member has 0.85 of its own score.
        cells.append(str(relative) if len(relative.lengths) > 1 else NONE)
        for threshold in (thresholds.RULER_BASE, thresholds.RULER_CHAT):
            cells.append(str(thresholds.effective_length(rows, threshold=threshold)))
        shown.append((member.index, [member.label, *cells]))
    heads = ["member", *(["L50 [95% CI]", "L85", "visual edge"] if retrieval else [])]
    heads += ["0.85 of the shortest", "above 0.794", "above 0.856"]
    said = ", ".join(f"{length:,}" for length in sorted(lengths))
    return Table(heads=heads, lines=shown, caption=words("rules", lengths=said)["caption"])


def _passes(members: Sequence[Member], task: str) -> bool:
    """Whether a member has an effective length by any of the rules."""
    values = (m.value for each in members for (name, _), m in each.own.items() if name == task)
    return max(values, default=0.0) >= 0.5


def _rows(member: Member, task: str) -> Rows:
    """Those under its own variant, at all lengths."""
    return rows_lib.concatenate([m.rows for (name, _), m in member.own.items() if name == task])


def scores(members: Sequence[Member]) -> Table | None:
    """Tasks that ask about a whole context, by length."""
    keys = sorted({key for m in members for key, own in m.own.items() if own.kind == "score"})
    if not keys:
        return None
    rows = []
    for member in members:
        found = [member.own.get(key) for key in keys]
        if any(found):
            shares = (
                _percent(summaries.share(each.rows, column="exact_match")) if each else NONE
                for each in found
            )
            rows.append((member.index, [member.label, *shares]))
    heads = [f"{task} at {length:,}" for task, length in keys]
    return Table(heads=["member", *heads], lines=rows, caption=words("scores")["caption"])


def texts(members: Sequence[Member]) -> dict[str, Table]:
    """Likelihood of text by every measure that its rows allow, by task."""
    tasks = (task for task in task_order(_asked(members, "likelihood")))
    return {task: _text(members, task) for task in tasks if evals.parse(task).compared}


def _text(members: Sequence[Member], task: str) -> Table:
    asked = [
        (member, measured, likelihoods(measured.rows, measured.rows))
        for member in members
        for (name, _), measured in member.own.items()
        if name == task
    ]
    heads = list(dict.fromkeys(head for _, _, measures in asked for head in measures))
    lines = []
    for member, measured, measures in asked:
        cells = [measures.get(head, NONE) for head in heads]
        lines.append((member.index, [member.label, f"{measured.length:,}", *cells]))
    return Table(heads=["member", "length", *heads], lines=lines, caption=words("texts")["caption"])


def shares(members: Sequence[Member]) -> dict[str, dict[str, Table]]:
    """Tables that tasks declare, by their section and by length."""
    found: dict[str, dict[str, Table]] = {}
    asked = [(member, measured) for member in members for measured in member.measurements]
    declared = {evals.parse(measured.task).shares: measured.task for _, measured in asked}
    for table, task in declared.items():
        if table is None:
            continue
        lines: dict[int, list[tuple[int, list[str]]]] = {}
        for member in members:
            own = [m for m in member.measurements if evals.parse(m.task).shares == table]
            results = rows_lib.concatenate([measured.rows for measured in own])
            variants = {measured.rotary: measured.variant for measured in own}
            for length in sorted({measured.length for measured in own}):
                columns = evals.parse(task).share_columns(results, length)
                for rotary, of_variant in columns.items():
                    cells = [
                        _percent(of_variant[head]) if head in of_variant else NONE
                        for head in table.heads
                    ]
                    line = member.index, [member.label, variants[rotary], *cells]
                    lines.setdefault(length, []).append(line)
        heads = ["trained with", "evaluated with", *table.heads]
        found[table.section] = {
            f"at {length:,}": Table(heads=heads, lines=lines[length], caption=table.caption)
            for length in sorted(lines)
        }
    return {section: tables for section, tables in found.items() if tables}


def _asked(members: Sequence[Member], *kinds: str) -> Iterable[str]:
    return {m.task for each in members for m in each.own.values() if m.kind in kinds}


def _percent(share: MeanWithError) -> str:
    return f"{100 * share.mean:.1f} ± {196 * share.standard_error:.1f}"
