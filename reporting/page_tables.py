"""The page's tables, one a question; a cell says as much as its rows can."""

from collections.abc import Sequence

import evals
from evals import rows as rows_lib
from evals.estimate import summaries, thresholds
from evals.estimate.effective_context import Estimate
from evals.estimate.summaries import MeanWithError
from reporting import predictors
from reporting.members import Member, intervals_over, learned, tasks
from reporting.page import NONE, Table, words
from reporting.tables import above_best, likelihoods

Line = tuple[int | None, dict[str, str]]  # the member it is about, and cells by head


def trained_lengths(members: Sequence[Member], task: str) -> Table:
    """Effective context by variant and trained length."""
    series = predictors.by_trained_length(members, task)
    lengths = sorted({member.trained_length for each in series for member in each})
    lines: list[Line] = []
    for each in series:
        found = {m.trained_length: _beside(m.estimates[task]) for m in each}
        by_length = {f"trained on {length:,}": found.get(length, NONE) for length in lengths}
        lines.append((None, {"variant": predictors.name(each), **by_length}))
    caption = words("trained_lengths", task=task, over=intervals_over(members))["caption"]
    return Table.of(lines, caption=caption)


def _beside(estimate: Estimate) -> str:
    return f"{estimate}; {estimate.accuracies}"


def rules(members: Sequence[Member]) -> dict[str, Table]:
    """Effective context beside what other rules make of the same rows, by task learned."""
    return {
        task: _rules(members, task)
        for task in tasks(members, "retrieval", "score")
        if learned(members, task) or _passes(members, task)
    }


def _rules(members: Sequence[Member], task: str) -> Table:
    lines: list[Line] = []
    lengths = set()
    for member in (member for member in members if member.of_task(task)):
        rows = rows_lib.concatenate([measured.rows for measured in member.of_task(task)])
        lengths |= set(rows["length"].tolist())
        cells = {"member": member.label}
        if estimate := member.estimates.get(task):
            cells |= {"L50 [95% CI]": str(estimate), "worst bin": estimate.worst_text}
            cells |= {"mean": estimate.mean_text, "L85": estimate.l85_text}
            cells["visual edge"] = f"{thresholds.visual_edge(rows):,.0f}"
        relative = thresholds.effective_length(rows)
        # At a single length every member has 0.85 of its own score.
        cells["0.85 of the shortest"] = str(relative) if len(relative.lengths) > 1 else NONE
        for threshold in (thresholds.RULER_BASE, thresholds.RULER_CHAT):
            found = thresholds.effective_length(rows, threshold=threshold)
            cells[f"above {threshold:g}"] = str(found)
        lines.append((member.index, cells))
    said = ", ".join(f"{length:,}" for length in sorted(lengths))
    return Table.of(lines, caption=words("rules", lengths=said)["caption"])


def _passes(members: Sequence[Member], task: str) -> bool:
    """Whether a member has an effective length by any of the rules."""
    values = (measured.value for member in members for measured in member.of_task(task))
    return max(values, default=0.0) >= 0.5


def scores(members: Sequence[Member]) -> Table | None:
    """Tasks that ask about a whole context, by length."""
    keys = sorted({key for m in members for key, own in m.own.items() if own.kind == "score"})
    lines: list[Line] = []
    for member in members:
        if asked := member.own.keys() & set(keys):
            cells = {"member": member.label} | {f"{task} at {n:,}": NONE for task, n in keys}
            for task, length in asked:
                share = summaries.share(member.own[task, length].rows, column="exact_match")
                cells[f"{task} at {length:,}"] = _percent(share)
            lines.append((member.index, cells))
    return Table.of(lines, caption=words("scores")["caption"]) if lines else None


def texts(members: Sequence[Member]) -> dict[str, Table]:
    """Likelihood of text by every measure that its rows allow, by task."""
    found: dict[str, Table] = {}
    for task in tasks(members, "likelihood"):
        own = [(m, each) for m in members for each in m.of_task(task) if each.compared]
        above = above_best([each for _, each in own])
        lines = [
            (
                member.index,
                {"member": member.label, "length": f"{each.length:,}"} | likelihoods(each) | cell,
            )
            for (member, each), cell in zip(own, above, strict=True)
        ]
        if lines:
            found[task] = Table.of(lines, caption=words("texts")["caption"])
    return found


def shares(members: Sequence[Member]) -> dict[str, dict[str, Table]]:
    """Tables that tasks declare, by their section and by length."""
    found: dict[str, dict[str, Table]] = {}
    declared = {evals.parse(m.task).shares: m.task for each in members for m in each.measurements}
    for table, task in declared.items():
        if table is None:
            continue
        lines: dict[int, list[Line]] = {}
        for member in members:
            own = [m for m in member.measurements if evals.parse(m.task).shares == table]
            results = rows_lib.concatenate([measured.rows for measured in own])
            variants = {measured.rotary: measured.variant for measured in own}
            for length in sorted({measured.length for measured in own}):
                columns = evals.parse(task).share_columns(results, length)
                for rotary, of_variant in columns.items():
                    cells = {"trained with": member.label, "evaluated with": variants[rotary]}
                    for head in table.heads:
                        share = of_variant.get(head)
                        cells[head] = _percent(share) if share else NONE
                    lines.setdefault(length, []).append((member.index, cells))
        if lines:
            found[table.section] = {
                f"at {length:,}": Table.of(lines[length], caption=table.caption)
                for length in sorted(lines)
            }
    return found


def _percent(share: MeanWithError) -> str:
    return f"{100 * share.mean:.1f} ± {196 * share.standard_error:.1f}"
