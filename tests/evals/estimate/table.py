"""The estimator against models whose accuracy by distance is known: a table of what it says.

usage: python -m tests.evals.estimate.table [REPEATS]

Documents of version 1: 64 documents of 64 questions at 2 to 253 tokens, half log-uniform and half
uniform; luck is correlated by .2 within a document (a Gaussian copula), and several seeds lie .2
octaves (standard deviation) around the truth, which is where accuracy is first half-way from its
ceiling to chance.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from evals.estimate import effective_context
from tests.evals.estimate.simulated import CHANCE, correlated, logistic

LONGEST = 253


def hole(low: int, high: int, bottom: float) -> Callable:
    """Right everywhere but from low to high."""
    return lambda m: np.where((m >= low) & (m < high + 1), bottom, 1.0)


def cosine(bottom: float) -> Callable:
    """Down to `bottom` at 29 tokens and back at 58, for ever: one pair's cosine."""
    return lambda m: bottom + (1 - bottom) * (1 + np.cos(2 * np.pi * m / 58)) / 2


def revived(m):
    """An edge at 30, and .8 again around a period of 58."""
    return np.maximum(logistic(30, 8)(m), 0.8 * np.exp(-(((m - 58) / 10) ** 2)))


def shelf(accuracy: float) -> Callable:
    """All right up to 12, a plateau, and an edge at 90."""
    return lambda m: np.where(m < 12, 1.0, accuracy) * logistic(90, 12)(m)


def floor(accuracy: float) -> Callable:
    """A fall at 40 that ends above chance."""
    return lambda m: accuracy + (1 - accuracy) * logistic(40, 4)(m)


CLEAN = {
    "fall, slope 1.5": logistic(40, 1.5), "fall, slope 3": logistic(40, 3),
    "fall, slope 6": logistic(40, 6), "fall, ceiling .9": logistic(40, 3, 0.9),
    "fall, ceiling .7": logistic(40, 3, 0.7), "fall at 12": logistic(12, 5),
    "step at 32": lambda m: np.where(m < 32, 1.0, CHANCE), "plateau .60, edge at 90": shelf(0.60),
    "plateau .55, edge at 90": shelf(0.55), "floor .05": floor(0.05), "floor .10": floor(0.10),
    "floor .20": floor(0.20), "floor .30": floor(0.30),
    "plateau .60 for ever": lambda m: np.where(m < 12, 1.0, 0.6),
    "never falls, .95": lambda m: np.full(np.shape(m), 0.95),
}  # fmt: skip
HOLES = {
    "hole .10 at 28-33": hole(28, 33, 0.10),
    "hole .40 at 28-35": hole(28, 35, 0.40),
    "revival after 30": revived,
    "period 58, bottom .20": cosine(0.20),
    "period 58, bottom .35": cosine(0.35),
    "period 58, bottom .45": cosine(0.45),
}
GATE = {
    "ceiling .50": lambda m: np.full(np.shape(m), 0.50),
    "ceiling .515": lambda m: np.full(np.shape(m), 0.515),
    "ceiling .60": lambda m: np.full(np.shape(m), 0.60),
}


def crossing(curve: Callable) -> float:
    """Find where it is first half-way from its ceiling to chance, tokens; inf if nowhere asked."""
    m = np.linspace(1, LONGEST, 200_001)
    ceiling = max(float(curve(np.array(2.0))), float(curve(np.array(1.0))))
    below = curve(m) < (ceiling + CHANCE) / 2
    return float(m[below.argmax()]) if below.any() else np.inf


def simulated(curve: Callable, seeds: int, random: np.random.Generator) -> Any:
    """Rows of one draw."""
    factors = 2 ** random.normal(0, 0.2 if seeds > 1 else 0, seeds)
    curves = [lambda m, f=f: curve(m / f) for f in factors]
    return correlated(curves, random, queries=64, longest=LONGEST)


def line(
    curve: Callable, seeds: int, repeats: int, estimate: Callable = effective_context.estimate
) -> dict[str, float]:
    """Summarise `repeats` estimates of one truth."""
    random = np.random.default_rng(20240523)
    truth = crossing(curve)
    result = [estimate(simulated(curve, seeds, random), resamples=200) for _ in range(repeats)]
    measured = [fit for fit in result if fit.verdict == effective_context.MEASURED]
    off = np.log2([fit.l50 / truth for fit in measured]) if np.isfinite(truth) else np.array([])
    if np.isfinite(truth):
        covered = [fit.ci_low <= truth <= fit.ci_high for fit in result]
    else:
        covered = [fit.ci_high == np.inf for fit in result]
    widths = [fit.octaves for fit in measured]
    return {
        "truth": truth,
        "measured": len(measured) / repeats,
        "bias": float(np.mean(off)) if len(off) else np.nan,
        "rmse": float(np.sqrt(np.mean(off**2))) if len(off) else np.nan,
        "covered": float(np.mean(covered)),
        "width": float(np.median(widths)) if widths else np.nan,
        "dips": float(np.mean([getattr(fit, "dips", False) for fit in result])),
        "learned": float(np.mean([fit.verdict != "NOT_LEARNED" for fit in result])),
    }


def main(arguments: Sequence[str]) -> None:
    repeats = int(arguments[0]) if arguments else 100
    print("truth                      seeds   at  measured  bias  rmse covered width  dips learned")
    for name, curve in {**CLEAN, **HOLES, **GATE}.items():
        for seeds in (1, 3, 8):
            row = line(curve, seeds, repeats)
            cells = "  ".join(f"{value:5.2f}" for value in list(row.values())[1:])
            print(f"{name:26} {seeds:4} {row['truth']:6.1f}  {cells}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
