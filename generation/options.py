"""What may be said of how to write; refused before anything is loaded."""

import dataclasses
from typing import Annotated, Literal

from data.config import MAX_CONTEXT
from settings.checks import Bounds, Count, NonNegative, Seed, check

Top = Annotated[float, Bounds(above=0, at_most=1)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """How to go on from a prompt.

    Attributes:
      max_new_tokens: where a text ends at the latest.
      temperature: logits are divided by it before a token is drawn; 0 takes the likeliest.
      top_k: draw among this many likeliest tokens; None: among all.
      top_p: of those, draw among the fewest likeliest whose probabilities reach this sum.
      seed: of what is drawn. A text hangs on it, its prompt and how often the prompt has come
        before, and not on what else is written beside it.
      stop: a text ends before the first of these strings.
      dtype: of matrix products. In bfloat16 logits tie, and a text may differ from batch to batch.
    """

    max_new_tokens: Annotated[int, Bounds(at_least=1, at_most=MAX_CONTEXT)] = 64
    temperature: NonNegative = 0.0
    top_k: Count | None = None
    top_p: Top | None = None
    seed: Seed = 0
    stop: tuple[str, ...] = ()
    dtype: Literal["float32", "bfloat16"] = "float32"

    def __post_init__(self):
        check(self)
        if "" in self.stop:
            raise ValueError("stop must be strings with something in them, got ''")
        if self.temperature == 0 and (self.top_k or self.top_p):
            raise ValueError(
                "top_k and top_p choose among what is drawn, and temperature=0 draws nothing: give "
                "a temperature above 0, like 0.8"
            )
