"""How far the heads of a model could see, by its own frequencies, windows and holes."""

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
    """`theory.capability.forecast` of the layer that sees farthest.

    Layers count one by one: what one could make of another's output is not looked at. A window
    and a blind stretch end what they begin.

    Args:
      model: trained at `context_length` tokens.
      num_others: keys that a query could be mistaken for.
      longest: distance asked about, tokens.
      masked_heads: (layer, query head), from 0, of heads that contribute nothing.
    """
    inv_freq_LKR = model.rotary_table(context_length).inv_freq
    inv_freq_LNR = capability.query_head_frequencies(inv_freq_LKR, model.num_heads)
    windows = rotary_lib.repeated(model.window, model.num_layers, "num_layers")
    layers = {}  # equal ones are computed once
    for layer, (inv_freq_NR, window) in enumerate(zip(inv_freq_LNR, windows, strict=True)):
        masked = [head for of, head in masked_heads if of == layer]
        heads_NR = np.delete(inv_freq_NR, masked, axis=0)
        if len(heads_NR):
            end = min(window or longest, longest)
            layers[heads_NR.tobytes(), end] = heads_NR
    made = [
        capability.forecast(heads_NR, num_others=num_others, longest=end)
        for (_, end), heads_NR in layers.items()
    ]
    l50 = max((each.l50 for each in made), default=0)
    if model.blind:
        l50 = min(l50, model.blind[0] - 1)
    needed = capability.required_capability(num_others)
    return Forecast(l50=l50, beyond=l50 == longest, needed=needed)
