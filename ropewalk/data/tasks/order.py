"""Order of two equal tokens: a key occurs twice, and the value after its first occurrence counts.

The keys are equal, so content does not tell them apart, and a model of one layer can only prefer
the farther position. Two different values are drawn from two ids, so chance is 1/2 whether a model
finds no key or cannot tell which came first. Du et al. (arXiv 2605.15514) conclude from random keys
that larger bases tell positions apart less well. Deeper models can also mark a repeated key, which
causal attention shows.
"""

import dataclasses
from typing import Annotated

import numpy as np

from ropewalk.data.task import Document, Sample, Task, TaskContext, draw_over_octaves
from ropewalk.data.tasks import kv
from ropewalk.data.tokenizer import NUM_KEYS
from ropewalk.utils.checks import Bounds


@dataclasses.dataclass(frozen=True, kw_only=True)
class Order(Task):
    """Order of two equal tokens; see the module.

    `distance` is that of the first occurrence, the second is `apart` tokens nearer. Results by both
    are those of several tasks: order(apart=2), order(apart=8), order(apart=32).

    Attributes:
      apart: tokens from the first occurrence to the second; None: drawn for each key, evenly over
        octaves up to its distance.
      answers: keys of a document, evenly over octaves of distance; fewer if there is no room.
    """

    kind = "retrieval"
    needs_training = True
    num_choices = 2

    apart: Annotated[int, Bounds(at_least=2)] | None = None
    answers: Annotated[int, Bounds(at_least=1, at_most=NUM_KEYS)] = 8

    def least_length(self, context: TaskContext) -> int:
        """Return the length of three pairs of two ids, the first two `apart`."""
        return (self.apart or 2) + 4

    def document(self, context: TaskContext, sample: Sample) -> Document:
        """Return keys that occur three times, and fillers in between."""
        tokenizer, random, length = context.tokenizer, sample.random, context.length
        starts = self._layout(length, random)
        count = starts.shape[1]
        tokens = tokenizer.fillers[random.integers(len(tokenizer.fillers), size=length + 1)]
        tokens[0] = tokenizer.bos_id
        tokens[starts] = tokenizer.keys[random.permutation(NUM_KEYS)[:count]]
        is_second = random.integers(2, size=count)
        tokens[starts + 1] = tokenizer.values[[is_second, 1 - is_second, is_second]]
        first, _, query = starts[:, np.argsort(starts[2])]
        # The logits at the third key predict the value after the first.
        answers = np.stack([query + 1, np.ones_like(query), query - (first + 1)], axis=1)
        return Document.from_lists(tokens, answers)

    def _layout(self, length: int, random: np.random.Generator) -> np.ndarray:
        """Draw the positions of each key, int64 `[3, keys]`: first, second and question."""
        least = self.apart or 2
        count = max(1, min(self.answers, length // 12))
        distances = draw_over_octaves(random, count, least + 1, length - 3)[::-1].tolist()
        free, starts = (1 << length) - 2, []
        for distance, octaves, share in zip(distances, *random.random((2, count)), strict=True):
            for gap in kv.nearest(distance + 1, length - 2):
                apart = self.apart or int(2 * ((gap - 1) / 2) ** octaves)
                places = free & free >> apart & free >> gap
                if gap >= least + 2 and places:
                    first = kv.lowest_from(places, 1 + int(share * (length - 1 - gap)))
                    starts.append((first, first + apart, first + gap))
                    for start in starts[-1]:
                        free &= ~kv.touched(start)
                    break
        return np.array(starts).T
