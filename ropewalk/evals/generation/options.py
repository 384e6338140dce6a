"""Options of text generation, validated before a checkpoint is loaded."""

import dataclasses
from typing import Annotated

from ropewalk.data.config import MAX_CONTEXT
from ropewalk.utils.checks import Bounds, Count, NonNegative, Seed, check

Top = Annotated[float, Bounds(above=0, at_most=1)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Options of text generation.

    Attributes:
      max_new_tokens: maximum number of new tokens of a text.
      temperature: logits are divided by it before sampling; 0 takes the most likely token.
      top_k: sample among this many most likely tokens; None: among all.
      top_p: sample among the fewest most likely of those whose probabilities sum to at least this.
      seed: seed of sampling. A text depends on it, on its prompt, and on the number of equal
        prompts before it, not on other texts of the batch.
      stop: a text ends before the first of these strings, in a tuple or a list.
    """

    max_new_tokens: Annotated[int, Bounds(at_least=1, at_most=MAX_CONTEXT)] = 64
    temperature: NonNegative = 0.0
    top_k: Count | None = None
    top_p: Top | None = None
    seed: Seed = 0
    stop: tuple[str, ...] = ()

    def __post_init__(self):
        check(self)
        if "" in self.stop:
            raise ValueError("stop must be non-empty strings, got ''")
        if self.temperature == 0 and (self.top_k or self.top_p):
            raise ValueError(
                "top_k and top_p need sampling, and temperature=0 takes the most likely token: set "
                "a temperature above 0, like 0.8"
            )
