"""Lengths that theory predicts for a model, from its frequencies."""

import dataclasses

import numpy as np

from ropewalk.model.config import ModelConfig
from ropewalk.theory import decay

# Default limit of the search for a first violation, tokens.
HORIZON = 2**20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Predictions:
    """Lengths predicted by the frequencies alone, in tokens.

    If layers or heads differ, the largest length counts, because a model may use any of them.

    Attributes:
      first_violation: first distance with B_m < 0; None if there is none below the limit.
      quarter_period, full_period: of the slowest rotated pair; inf if nothing rotates.
    """

    first_violation: int | None
    quarter_period: float
    full_period: float


def of_model(
    model: ModelConfig, context_length: int, row_length: int | None = None
) -> Predictions | None:
    """Return the predictions of a model; None if `model.scores` are no rotated plain queries.

    See `ModelConfig.position_table` for the lengths, in tokens.
    """
    if model.scores != "rotary":
        return None
    return predict(model.position_table(context_length, row_length).inv_freq)


def predict(inv_freq: np.ndarray, limit: int = HORIZON) -> Predictions:
    """Predict lengths from the frequencies of a rotary table.

    Args:
      inv_freq: float64 `[L, K, R]`, radians per token.
      limit: first violations are searched below this distance, tokens.
    """
    heads = np.unique(inv_freq.reshape(-1, inv_freq.shape[-1]), axis=0)
    return Predictions(
        first_violation=decay.latest(decay.first_violation(head, limit) for head in heads),
        quarter_period=max(decay.quarter_period(head) for head in heads),
        full_period=max(decay.full_period(head) for head in heads),
    )
