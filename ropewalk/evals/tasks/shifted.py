"""The same text at other positions: a model with relative positions must have the same loss.

`--tasks "shifted(first=0),shifted(first=8192),shifted(first=65536)"` finds most bugs of rotations:
wrong order of pairs, angles in too few bits, tables that end, windows that count from 0. Texts are
the same for every `first`, and so must be the nats per token, up to the rounding of the compute
dtype (1e-5 in float32). Only log-n scaling may differ: it multiplies the logits of a query by the
logarithm of its position. Dynamic variants choose by the length of the row, which stays the same.
"""

import dataclasses
from typing import Annotated

from ropewalk.data.task import Document, Sample, TaskContext
from ropewalk.evals import text
from ropewalk.utils.checks import Bounds


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shifted(text.CropTask):
    """Loss of a text at other positions; see the module. A row's `distance` is its length.

    Attributes:
      first: position of BOS.
    """

    kind = "likelihood"

    first: Annotated[int, Bounds(at_least=0, at_most=2**24)] = 65_536

    def document(self, context: TaskContext, sample: Sample) -> Document:
        """Make BOS and a crop, one answer in all."""
        tokens, sizes_N2 = sample.source
        whole = text.ending(tokens, sizes_N2, slice(1, None), context.length, 0)
        return dataclasses.replace(whole, first_position=self.first)
