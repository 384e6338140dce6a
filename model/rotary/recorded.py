"""Frequencies that a variant of the user's own file gave, as a run records them."""

import dataclasses

import numpy as np

from model.rotary.base import Rotary, listed
from settings.checks import NonNegative, Positive


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recorded(Rotary):
    """Pair i rotates `values[i]` radians per token, as the file said when training started.

    `model.rotary=path/to/mine.py:Bent(strength=2)` becomes this: whoever receives the run loads and
    evaluates it without running a file that came with it.

    Attributes:
      name: what was written for it.
      values: radians per token, at least 0, one number a pair of the whole head.
      scale: its `logit_scale`.
      unrotated_scale: its `unrotated_logit_scale`.

    Cookbook:
      frequency: what the file gave when training started
      source: –
      use: made of `path/to/mine.py:Name(...)`; not written by hand
      transformers: –
      write: `recorded(name='mine.py:Bent',values=(1.0,0.1,...))`
    """

    name: str
    values: tuple[NonNegative, ...]
    scale: Positive = 1.0
    unrotated_scale: Positive = 1.0

    def __post_init__(self):
        object.__setattr__(self, "values", listed(self.values))
        super().__post_init__()

    @property
    def logit_scale(self) -> float:
        """See `Rotary.logit_scale`."""
        return self.scale

    @property
    def unrotated_logit_scale(self) -> float:
        """See `Rotary.unrotated_logit_scale`."""
        return self.unrotated_scale

    def frequencies(self, rotary_dim: int) -> np.ndarray:
        """See `Rotary.frequencies`."""
        return np.array(self.values)

    @classmethod
    def of(cls, variant: Rotary, name: str, head_dim: int) -> "Recorded":
        """What `variant`, written as `name`, gives a head of `head_dim` features.

        Raises:
          ValueError: if it gives rows of unlike lengths unlike frequencies, or senseless ones.
        """
        # One vector is all that is recorded: rows of other lengths would get the wrong one.
        if type(variant).at_length is not Rotary.at_length:
            raise ValueError(
                f"{name} has frequencies of each row's length, which a run cannot record; dynamic "
                "variants must stand in model/rotary"
            )
        return cls(
            name=name,
            values=variant.inv_freq(head_dim),  # pyright: ignore[reportArgumentType]
            scale=variant.logit_scale,
            unrotated_scale=variant.unrotated_logit_scale,
            log_n=variant.log_n,
        )
