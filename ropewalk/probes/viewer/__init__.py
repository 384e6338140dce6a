"""The attention viewer: one self-contained HTML file.

from ropewalk.probes import capture, view

text = "def attend(query, key, value):"
view({run.directory.name: capture(run, text) for run in runs}, runs[0].tokenizer).save("view.html")

As the last expression of a notebook cell, `view(...)` displays the page.
"""

import itertools
from collections.abc import Sequence

from ropewalk.model.config import ModelConfig


def list_heads(
    name: object, model: ModelConfig, layers: Sequence[int] | None, heads: Sequence[int] | None
) -> list[tuple[int, int]]:
    """Return the (layer, head) pairs of some layers and heads of a model, layer by layer.

    Args:
      name: of the model, for messages.
      model: the model.
      layers, heads: from 0; None: all.

    Raises:
      ValueError: for a layer or a head that does not exist, or if none is selected.
    """
    layers = range(model.num_layers) if layers is None else layers
    heads = range(model.num_heads) if heads is None else heads
    for kind, numbers, count in (
        ("layers", layers, model.num_layers),
        ("heads", heads, model.num_heads),
    ):
        if not len(numbers) or min(numbers) < 0 or max(numbers) >= count:
            raise ValueError(f"{kind}={list(numbers)}: {name} has {kind} 0 to {count - 1}")
    return list(itertools.product(layers, heads))
