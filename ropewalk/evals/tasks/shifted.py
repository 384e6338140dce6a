"""The same text at three positions: a model with relative positions must have the same loss.

A difference shows most bugs of rotations: wrong order of pairs, angles in too few bits, tables that
end, windows that count from 0. Only log-n scaling may differ: it multiplies the logits of a query
by the logarithm of its position. Dynamic variants choose by the length of the row, which stays the
same. The verdict is `reporting.tasks.shifted`.
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
      first: position of BOS in the third row of a text; it is 0 in the first row, and an eighth of
        this in the second.
    """

    kind = "likelihood"

    first: Annotated[int, Bounds(at_least=0, at_most=2**24)] = 65_536

    def document(self, context: TaskContext, sample: Sample) -> list[Document]:
        """Make BOS and a crop, one answer in all, at each position."""
        tokens, sizes_N2 = sample.source
        rows = [
            text.ending(tokens, sizes_N2, slice(1, None), context.length, query)
            for query in range(3)
        ]
        positions = 0, self.first // 8, self.first
        return [
            dataclasses.replace(row, first_position=position)
            for row, position in zip(rows, positions, strict=True)
        ]
