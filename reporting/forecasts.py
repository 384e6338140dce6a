"""Forecast of a model's effective context from its frequencies, windows and masked distances."""

from collections.abc import Sequence

import numpy as np

from model import rotary as rotary_lib
from model.config import ModelConfig
from theory import capability
from theory.capability import Forecast


def forecast(
    model: ModelConfig,
    context_length: int,
    *,
    num_others: int,
    longest: int,
    masked_heads: Sequence[Sequence[int]] = (),
) -> Forecast:
    """Return `theory.capability.forecast` of the layer with the longest effective context.

    Layers are evaluated separately; compositions of layers are not modelled. L50 ends where a
    window or the masked distances begin.

    Args:
      model: trained at `context_length` tokens.
      num_others: number of keys that could be confused with the matching key.
      longest: longest distance tested, tokens.
      masked_heads: (layer, query head), from 0, of heads that are removed.
    """
    inv_freq_LKR = model.position_table(context_length).inv_freq
    inv_freq_LNR = capability.query_head_frequencies(inv_freq_LKR, model.num_heads)
    windows = rotary_lib.repeat_pattern(model.window, model.num_layers, "num_layers")
    layers = {}  # equal layers are computed once
    for layer, (inv_freq_NR, window) in enumerate(zip(inv_freq_LNR, windows, strict=True)):
        masked = [head for masked_layer, head in masked_heads if masked_layer == layer]
        heads_NR = np.delete(inv_freq_NR, masked, axis=0)
        if len(heads_NR):
            end = min(window or longest, longest)
            layers[heads_NR.tobytes(), end] = heads_NR
    l50 = max(
        (
            capability.forecast(heads_NR, num_others=num_others, longest=end).l50
            for (_, end), heads_NR in layers.items()
        ),
        default=0,
    )
    if model.masked_distances:
        l50 = min(l50, model.masked_distances[0] - 1)
    return Forecast(
        l50=l50, beyond=l50 == longest, needed=capability.required_capability(num_others)
    )
