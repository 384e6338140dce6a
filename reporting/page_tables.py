"""Tables of the page: trained lengths, other definitions, whole-context tasks, text."""

from collections.abc import Sequence

from evals import rows as rows_lib
from evals.estimate import thresholds
from reporting import predictors
from reporting.members import Member, describe_intervals, learned, tasks
from reporting.page import NONE, Table, format_captions
from reporting.tables import above_best, format_share, likelihood_cells

Line = tuple[int | None, dict[str, str]]  # member index, cells by head


def trained_lengths(members: Sequence[Member], task: str) -> Table:
    """Return effective context by variant and trained length."""
    series = predictors.group_trained_lengths(members, task)
    lengths = sorted({member.trained_length for group in series for member in group})
    lines: list[Line] = []
    for group, name in zip(series, predictors.series_names(series), strict=True):
        estimates = {m.trained_length: m.estimates[task] for m in group}
        cells = {"variant": name}
        for length in lengths:
            estimate = estimates.get(length)
            text = f"{estimate}; {estimate.accuracies}" if estimate else NONE
            cells[f"trained on {length:,}"] = text
        lines.append((None, cells))
    captions = format_captions("trained_lengths", task=task, over=describe_intervals(members))
    return Table.from_cells(lines, caption=captions["caption"])


def rules(members: Sequence[Member]) -> dict[str, Table]:
    """Return effective context by several definitions, by task, for tasks with any recall."""
    return {
        task: _rules_table(members, task)
        for task in tasks(members, "retrieval", "score")
        if learned(members, task)
        or any(m.value >= 0.5 for member in members for m in member.select_task(task))
    }


def _rules_table(members: Sequence[Member], task: str) -> Table:
    lines: list[Line] = []
    lengths = set()
    for member in (member for member in members if member.select_task(task)):
        rows = rows_lib.concatenate([measured.rows for measured in member.select_task(task)])
        lengths |= set(rows["length"].tolist())
        cells = {"member": member.label}
        if estimate := member.estimates.get(task):
            cells |= {"L50 [95% CI]": str(estimate), "L85 [95% CI]": estimate.l85_text}
            cells["visual edge"] = f"{thresholds.visual_edge(rows):,.0f}"
        relative = thresholds.effective_length(rows)
        # With a single length, the comparison with the shortest length is trivial.
        cells["0.85 of the shortest"] = str(relative) if len(relative.lengths) > 1 else NONE
        for threshold in (thresholds.RULER_BASE, thresholds.RULER_CHAT):
            effective = thresholds.effective_length(rows, threshold=threshold)
            cells[f"above {threshold:g}"] = str(effective)
        lines.append((member.index, cells))
    lengths_text = ", ".join(f"{length:,}" for length in sorted(lengths))
    caption = format_captions("rules", lengths=lengths_text)["caption"]
    return Table.from_cells(lines, caption=caption)


def scores(members: Sequence[Member]) -> Table | None:
    """Return the scores of whole-context tasks by length."""
    keys = sorted({key for m in members for key, m in m.trained.items() if m.kind == "score"})
    lines: list[Line] = []
    for member in members:
        if evaluated := member.trained.keys() & set(keys):
            cells = {"member": member.label} | {f"{task} at {n:,}": NONE for task, n in keys}
            for task, length in evaluated:
                rows = member.trained[task, length].rows
                cells[f"{task} at {length:,}"] = format_share(rows, column="exact_match")
            lines.append((member.index, cells))
    caption = format_captions("scores")["caption"]
    return Table.from_cells(lines, caption=caption) if lines else None


def texts(members: Sequence[Member]) -> dict[str, Table]:
    """Return all measures of the likelihood of text, by task."""
    tables: dict[str, Table] = {}
    for task in tasks(members, "likelihood"):
        results = [(m, result) for m in members for result in m.select_task(task)]
        results = [(member, result) for member, result in results if result.compared]
        lines: list[Line] = []
        above = above_best([result for _, result in results])
        for (member, result), cell in zip(results, above, strict=True):
            cells = {"member": member.label, "length": f"{result.length:,}"}
            lines.append((member.index, cells | likelihood_cells(result) | cell))
        if lines:
            tables[task] = Table.from_cells(lines, caption=format_captions("texts")["caption"])
    return tables
