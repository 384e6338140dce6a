"""Scores that are no rotation of plain queries and keys: every file of this folder defines one.

A file defines one subclass of `Attention`, which overrides `compute_qkv` (and adds parameters in
`__init__`). Its queries and keys have `Architecture.head_dim` features, in pairs (i, i + H / 2)
that `model.positions` then rotates by the frequencies of `model.rotary`; its values have
`value_dim`. `model.scores` is the name of the file. Training, sweeps, evaluation, generation,
probes by distance and reports follow. What reads frequencies as those of plain RoPE says that it
does not apply: B_m and its bound, probes that remove pairs, and exports.
"""

import functools
import sys

from ropewalk.model.attention import Attention
from ropewalk.utils.messages import nearest
from ropewalk.utils.plugins import classes_in


@functools.cache
def all_scores() -> dict[str, type[Attention]]:
    """Return the class of attention of each kind of scores, by the name of its file."""
    return classes_in(sys.modules[__name__], Attention)


def find(name: str) -> type[Attention]:
    """Return the class of attention of a kind of scores; "rotary" is plain attention.

    Raises:
      ValueError: if there is no such file.
    """
    classes = {"rotary": Attention, **all_scores()}
    if name not in classes:
        raise ValueError(f"no model.scores={name}; {nearest(name, classes)}")
    return classes[name]
