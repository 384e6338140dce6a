"""The lengths a rotary table predicts, whatever its variants."""

import dataclasses
from collections.abc import Iterable

import numpy as np

from theory import decay

# Theory is looked for this far, in tokens.
HORIZON = 2**20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Predictions:
    """What the frequencies alone predict, in tokens.

    A head is what a base bounds. Where layers or heads differ, the one that reaches farthest
    counts: a model may use any of them.

    Attributes:
      first_violation: first distance with B_m < 0; None if none was found below the limit.
      quarter_period, full_period: of the slowest rotated pair; inf where nothing rotates.
      arccos_bound: how far that pair carries half of itself through all layers; likewise.
    """

    first_violation: int | None
    quarter_period: float
    full_period: float
    arccos_bound: float


def predict(inv_freq: np.ndarray, limit: int = HORIZON) -> Predictions:
    """What the frequencies of a rotary table predict.

    Args:
      inv_freq: float64 `[L, K, R]`, radians per token.
      limit: a first violation is looked for below this distance, tokens.
    """
    heads = np.unique(inv_freq.reshape(-1, inv_freq.shape[-1]), axis=0)
    return Predictions(
        first_violation=farthest(decay.first_violation(head, limit) for head in heads),
        quarter_period=max(decay.quarter_period(head) for head in heads),
        full_period=max(decay.full_period(head) for head in heads),
        arccos_bound=max(decay.arccos_bound(head, len(inv_freq)) for head in heads),
    )


def farthest(firsts: Iterable[int | None]) -> int | None:
    """The last of first violations; None, which stands for never, comes after all of them."""
    found = list(firsts)
    return None if None in found else max(first for first in found if first is not None)


def by_layer(inv_freq: np.ndarray, limit: int) -> list[list[int | None]]:
    """The first violation of every head of a rotary table, in tokens; None if there is none.

    Args:
      inv_freq: float64 `[L, K, R]`, radians per token.
      limit: distances below this are tested.
    """
    heads = {tuple(head) for layer in inv_freq.tolist() for head in layer}
    found = {head: decay.first_violation(np.array(head), limit) for head in heads}
    return [[found[tuple(head)] for head in layer] for layer in inv_freq.tolist()]
