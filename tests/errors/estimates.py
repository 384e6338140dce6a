"""Rows and counts that no estimate can be made of."""

import numpy as np

from evals import rows as rows_lib
from evals.estimate import effective_context, regression, summaries, thresholds
from evals.estimate.regression import Point
from evals.estimate.trials import Trials
from tests.errors.table import Row
from tests.evals.estimate.simulated import logistic, simulate

SEEN = simulate([logistic(40, 3)], np.random.default_rng(16))
TEXT = {name: np.arange(4) for name in ("document", "query", "num_tokens", "num_bytes", "nll")}
ELSEWHERE = SEEN | {
    "task": np.full(len(SEEN["task"]), "lines"),
    "length": np.full(len(SEEN["task"]), 64),
}
COUNTS = Trials.of(SEEN).counts()


def mixed(column: str) -> rows_lib.Rows:
    """Rows the first of which is of another task, length, ..."""
    other = np.array(["other"]) if SEEN[column].dtype.kind == "U" else np.array([1])
    return SEEN | {column: np.concatenate([other, SEEN[column][1:]])}


def point(l50: float, predicted: float) -> Point:
    """One base and what was forecast of it."""
    return Point(base=f"rope(base={l50})", l50=l50, predictors={"theory": predicted})


def counted(counts) -> Trials:
    """Counts as a study keeps them."""
    return Trials.of_counts(counts, distances=(2, 5), chance=0.25)


ROWS = [
    *(
        Row(
            lambda column=column: effective_context.estimate(mixed(column)),
            f"an estimate needs rows of one {column}, got {{}}",
        )
        for column in ("task", "length", "rotary", "step", "trained_length")
    ),
    Row(
        lambda: effective_context.estimate(
            SEEN | {"task": np.full(len(SEEN["task"]), "perplexity")}
        ),
        "task perplexity measures likelihood; effective context needs a task of kind retrieval",
    ),
    Row(
        lambda: effective_context.estimate(rows_lib.columns([])),
        "no rows to estimate from; evaluate first",
    ),
    Row(
        lambda: regression.regress([point(8, 9), point(16, 17)], "theory"),
        "a regression on theory needs three bases that differ in it and whose "
        "effective context was measured, got 2; evaluate more members",
    ),
    Row(
        lambda: regression.regress([point(8 * n, 9) for n in range(1, 6)], "theory"),
        "a regression on theory needs three bases that differ in it and whose "
        "effective context was measured, got 1; evaluate more members",
    ),
    Row(
        lambda: regression.compare([point(8 * n, 9) for n in range(1, 6)]),
        "a regression on theory needs three bases that differ in it and whose "
        "effective context was measured, got 1; evaluate more members",
    ),
    Row(
        "evaluate.py run --precision=0.125",
        "octaves must be above 0.125, the width of a bin, got 0.125; a quarter octave is 0.25",
        run=True,
    ),
    Row(
        lambda: summaries.difference(TEXT, {n: x[:-1] for n, x in TEXT.items()}),
        "rows to compare have different answers; evaluate both with the same task, length and "
        "number of documents",
    ),
    Row(
        lambda: thresholds.effective_length({n: x[:0] for n, x in SEEN.items()}),
        "no rows to compute an effective length from; evaluate first",
    ),
    Row(
        lambda: thresholds.visual_edge({n: x[:0] for n, x in SEEN.items()}),
        "no rows to compute an edge from; evaluate first",
    ),
    Row(
        lambda: thresholds.effective_length(
            {name: np.concatenate([SEEN[name], ELSEWHERE[name]]) for name in SEEN}
        ),
        "effective length needs every task at every length, and kv was not evaluated "
        "at length 64; evaluate it there or leave that length out",
    ),
    Row(
        lambda: counted({name: column[:0] for name, column in COUNTS.items()}),
        "no counts to estimate from; evaluate first",
    ),
    Row(
        lambda: counted({name: x for name, x in COUNTS.items() if name != "right"}),
        "counts need columns seed, document, bin, asked, right; right is missing",
    ),
]
