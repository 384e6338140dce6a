"""Fixed target: the gain of the same tokens from more context.

The last `target` tokens of a text are predicted from the 32, 64, ... tokens before them, in one
forward pass per context with BOS in front, as in rerope's evaluation (github.com/bojone/rerope).
The tokens are the same for every context, so differences are paired. Context is superficial if
perplexity stops falling at a context much shorter than the trained length and retrieval fails
beyond it (Men et al., arXiv 2405.14591).
"""

import dataclasses

from ropewalk.data.task import Document, Sample, TaskContext
from ropewalk.evals import text
from ropewalk.utils.checks import Count

FIRST_CONTEXT = 32


@dataclasses.dataclass(frozen=True, kw_only=True)
class FixedTarget(text.CropTask):
    """Loss of a fixed target by context; see the module.

    A row's `distance` is the context: tokens before the target, without BOS.

    Attributes:
      target: tokens to predict at the end of a text.
    """

    kind = "likelihood"

    target: Count = 256

    def least_length(self, context: TaskContext) -> int:
        """Return the target plus the shortest context."""
        return self.target + FIRST_CONTEXT

    def document(self, context: TaskContext, sample: Sample) -> list[Document]:
        """Make the same target after each context."""
        ids, sizes_N2 = sample.source
        return [
            text.ending(ids, sizes_N2, slice(-size - self.target, None), self.target, query)
            for query, size in enumerate(contexts(context.length - self.target))
        ]


def contexts(longest: int) -> list[int]:
    """Return the contexts 32, 64, ... and `longest`, tokens."""
    octaves = range((max(0, longest - 1) // FIRST_CONTEXT).bit_length())
    return [FIRST_CONTEXT << octave for octave in octaves] + [longest]
