"""Lengths predicted by a rotary table of any variants."""

import dataclasses
from collections.abc import Iterable

import numpy as np

from theory import decay

# Default limit of the search for a first violation, tokens.
HORIZON = 2**20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Predictions:
    """Lengths predicted by the frequencies alone, in tokens.

    If layers or heads differ, the largest length counts, because a model may use any of them.

    Attributes:
      first_violation: first distance with B_m < 0; None if there is none below the limit.
      quarter_period, full_period: of the slowest rotated pair; inf if nothing rotates.
      arccos_bound: `decay.arccos_bound` of that pair; inf if nothing rotates.
    """

    first_violation: int | None
    quarter_period: float
    full_period: float
    arccos_bound: float


def predict(inv_freq: np.ndarray, limit: int = HORIZON) -> Predictions:
    """Predict lengths from the frequencies of a rotary table.

    Args:
      inv_freq: float64 `[L, K, R]`, radians per token.
      limit: first violations are searched below this distance, tokens.
    """
    heads = np.unique(inv_freq.reshape(-1, inv_freq.shape[-1]), axis=0)
    return Predictions(
        first_violation=latest(decay.first_violation(head, limit) for head in heads),
        quarter_period=max(decay.quarter_period(head) for head in heads),
        full_period=max(decay.full_period(head) for head in heads),
        arccos_bound=max(decay.arccos_bound(head, len(inv_freq)) for head in heads),
    )


def latest(violations: Iterable[int | None]) -> int | None:
    """Return the largest of first violations; None means never and is larger than all."""
    violations = list(violations)
    return None if None in violations else max(v for v in violations if v is not None)


def violations(inv_freq: np.ndarray, limit: int) -> list[list[int | None]]:
    """Return the first violation of every head of a rotary table, in tokens; None if there is none.

    Args:
      inv_freq: float64 `[L, K, R]`, radians per token.
      limit: distances below this are tested.
    """
    heads = {tuple(head) for layer in inv_freq.tolist() for head in layer}
    firsts = {head: decay.first_violation(np.array(head), limit) for head in heads}
    return [[firsts[tuple(head)] for head in layer] for layer in inv_freq.tolist()]
