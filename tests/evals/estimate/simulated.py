"""Rows of simulated models whose accuracy by distance is known."""

import numpy as np

from ropewalk.evals import rows
from ropewalk.evals.estimate.effective_context import Estimate

CHANCE = 1 / 64


def logistic(l50, slope, ceiling=1.0):
    """Accuracy that is half-way from ceiling to chance at l50; slope is per octave."""
    return lambda m: CHANCE + (ceiling - CHANCE) / (1 + (m / l50) ** (slope / np.log(2)))


def simulate(
    curves, random, *, documents=64, queries=16, longest=256, shortest=2, together=0.0, first=0
) -> rows.Rows:
    """Rows of a model whose accuracy at distance m is curve(m), one curve a seed.

    Distances are half log-uniform, half uniform. With probability `together` a query's luck is
    its document's. `first` is the number of the first document.
    """
    shape = documents, queries
    log_uniform = np.exp(random.uniform(np.log(shortest), np.log(longest + 1), shape))
    uniform = random.uniform(shortest, longest + 1, shape)
    distance = np.where(random.random(shape) < 0.5, log_uniform, uniform).astype(int)
    seed, document, query = (index.ravel() for index in np.indices((len(curves), *shape)))
    result = {"seed": seed, "document": first + document, "query": query}
    result["distance"] = np.tile(distance.ravel(), len(curves))
    right = []
    for curve in curves:
        luck = random.random(shape)
        luck = np.where(random.random(shape) < together, random.random((documents, 1)), luck)
        right.append(luck < curve(distance))
    result["exact_match"] = np.ravel(right)
    constants = {
        "task": "kv", "run": "rope(base=10)", "step": 400, "rotary": "rope(base=10)",
        "trained_length": 256, "length": 256, "chance": CHANCE,
    }  # fmt: skip
    size = len(result["seed"])
    return result | {name: np.full(size, value) for name, value in constants.items()}


def interval_octaves(estimate: Estimate) -> float:
    """Width of the part of l50's interval within the distances measured."""
    ends = np.clip([estimate.ci_low, estimate.ci_high], estimate.shortest, estimate.longest)
    return float(np.log2(ends[1] / ends[0]))
