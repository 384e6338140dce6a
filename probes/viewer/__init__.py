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
    selected = []
    for kind, numbers, count in (
        ("layer", layers, model.num_layers),
        ("head", heads, model.num_heads),
    ):
        selected.append(range(count) if numbers is None else numbers)
        if not len(selected[-1]):
            raise ValueError(f"{kind}s=[] selects no {kind}; leave it out to show all")
        for number in selected[-1]:
            if not 0 <= number < count:
                raise ValueError(f"{name} has no {kind} {number}: {kind}s are 0 to {count - 1}")
    return list(itertools.product(*selected))
