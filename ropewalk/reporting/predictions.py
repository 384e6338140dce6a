"""Lengths that theory predicts for a model, from its frequencies, windows and masked distances."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from ropewalk.model import rotary as rotary_lib
from ropewalk.model.config import ModelConfig
from ropewalk.theory import capability, decay
from ropewalk.theory.capability import Bound

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


def bound(
    model: ModelConfig,
    context_length: int,
    length: int | None = None,
    *,
    num_others: int,
    longest: int,
    masked_heads: Sequence[Sequence[int]] = (),
) -> Bound:
    """Return `theory.capability.bound_l50` of the layer with the longest effective context.

    Layers are evaluated separately; compositions of layers are not modeled. L50 ends where a
    window or the masked distances begin.

    Args:
      model: trained at `context_length` tokens.
      length: of the rows, tokens, on which dynamic variants depend; None: that of training.
      num_others: number of keys that could be confused with the matching key.
      longest: longest distance tested, tokens.
      masked_heads: (layer, query head), from 0, of heads that are removed.
    """
    inv_freq_LKR = model.position_table(context_length, length).inv_freq
    inv_freq_LNR = capability.query_head_frequencies(inv_freq_LKR, model.num_heads)
    windows = rotary_lib.repeat_pattern(model.window, model.num_layers, "num_layers")
    layers = []
    for layer, (inv_freq_NR, window) in enumerate(zip(inv_freq_LNR, windows, strict=True)):
        masked = [head for masked_layer, head in masked_heads if masked_layer == layer]
        reach = min(window - 1, longest) if window else longest  # a window includes the query
        if len(heads_NR := np.delete(inv_freq_NR, masked, axis=0)) and reach:
            layers.append((heads_NR, reach))
    l50 = capability.bound_layers(layers, num_others=num_others).l50 if layers else 0
    if model.masked_distances:
        l50 = min(l50, model.masked_distances[0] - 1)
    return Bound(l50=l50, beyond=l50 == longest, needed=capability.required_capability(num_others))
