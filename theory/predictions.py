"""The lengths a rotary table predicts, whatever its schedules."""

import dataclasses

import numpy as np

from theory import decay

# Theory is looked for this far, in tokens.
HORIZON = 2**20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Predictions:
    """What the frequencies alone predict, in tokens.

    Where layers differ, the layer that reaches farthest counts: a model may use any of them.

    Attributes:
      first_negative: first distance with B_m < 0; None if there is none below `HORIZON`.
      quarter_period, full_period: of the slowest turning pair; inf where nothing turns.
    """

    first_negative: int | None
    quarter_period: float
    full_period: float


def predict(inv_freq: np.ndarray) -> Predictions:
    """What the frequencies of a rotary table, float64 `[L, R]`, radians per token, predict."""
    layers = np.unique(inv_freq, axis=0)
    bounds = [decay.first_negative(layer, HORIZON) for layer in layers]
    return Predictions(
        first_negative=None if None in bounds else max(bound for bound in bounds if bound),
        quarter_period=max(decay.quarter_period(layer) for layer in layers),
        full_period=max(decay.full_period(layer) for layer in layers),
    )
