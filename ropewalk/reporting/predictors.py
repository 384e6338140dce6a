"""L50 against its possible bounds: predictions from the frequencies, and the base."""

import math
from collections.abc import Iterator, Mapping, Sequence

from ropewalk.evals.estimate import regression
from ropewalk.evals.estimate.effective_context import MEASURED
from ropewalk.evals.estimate.regression import Point, Regression
from ropewalk.evals.estimate.summaries import Interval
from ropewalk.reporting.members import Member, learned, tasks
from ropewalk.reporting.page import NONE, Line, Table, format_caption

# Lengths in tokens, except for the base.
BASE = "base"
NAMES = {
    "D_H": "D_H",
    "first_violation": "theory length",
    "quarter_period": "quarter period",
    BASE: "base",
}


def predict(member: Member, task: str) -> Mapping[str, float | None]:
    """Return the value of each of `NAMES`; D_H is clipped at the longest distance tested."""
    bound = member.bounds[task]
    values = vars(member.theory) | {BASE: member.base, "D_H": bound and max(1, bound.l50)}
    return {name: values[name] for name in NAMES}


def compare(members: Sequence[Member]) -> dict[tuple[str, int], list[Regression]]:
    """Return regressions of L50 on each predictor, by task and trained length.

    They have ascending leave-one-base-out errors. Without three measured bases there are none.
    """
    groups: dict[tuple[str, int], list[Member]] = {}
    for task in tasks(members):
        for member in sorted(learned(members, task), key=lambda m: m.trained_length):
            if member.base is not None:
                groups.setdefault((task, member.trained_length), []).append(member)
    comparisons = {}
    for (task, length), group in groups.items():
        points = []
        for member in group:
            nearest, predictors = member.nearest(task), predict(member, task)
            for estimate in nearest.by_seed.values() if nearest else ():
                if estimate.has_l50:
                    l50 = estimate.l50 if estimate.verdict == MEASURED else math.nan
                    points.append(Point(base=member.label, l50=l50, predictors=predictors))
        if regressions := regression.compare(points):
            comparisons[task, length] = regressions
    return comparisons


def comparisons(members: Sequence[Member]) -> Iterator[tuple[str, str, Table]]:
    """Yield the table of each comparison: a line per predictor, the best first."""
    for (task, length), regressions in compare(members).items():
        lines: list[Line] = []
        for line in regressions:
            cells = {
                "predictor": NAMES[line.predictor],
                "leave-one-base-out error (octaves)": f"{line.error:.2f}",
                "y = x error (octaves)": NONE if line.predictor == BASE else f"{line.as_is:.2f}",
                "slope [95% CI]": _format_interval(line.slope),
                "intercept [95% CI]": _format_interval(line.intercept),
            }
            lines.append((None, cells))
        first = regressions[0]
        caption = format_caption(
            "predictors", num_bases=first.num_bases, num_censored=first.num_censored
        )
        name = f"{task}, context length {length:,}"
        table = Table.from_cells(lines, has_all_columns=True, caption=caption)
        yield "Predictions from the frequencies", name, table


def _format_interval(interval: Interval) -> str:
    return "{:.2f} [{:.2f}, {:.2f}]".format(*interval)
