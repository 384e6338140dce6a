"""Frequencies of a variant from a user's file, as a run records them."""

import dataclasses

import numpy as np

from ropewalk.model.rotary.base import Rotary, as_floats
from ropewalk.utils.checks import Positive


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recorded(Rotary):
    """Pair i rotates `values[i]` radians per token.

    `model.rotary=path/to/mine.py:Bent(strength=2)` becomes this when training starts, so that a run
    can be loaded and evaluated without executing a file that came with it.

    Attributes:
      name: expression of the original variant.
      values: radians per token, one number per pair of the head.
      scale: `logit_scale` of the original variant.
      unrotated_scale: `unrotated_logit_scale` of the original variant.

    Cookbook:
      frequency: values computed by the file when training started
      source: –
      use: made from `path/to/mine.py:Name(...)`; not written by hand
      transformers: –
      write: `recorded(name='mine.py:Bent',values=(1.0,0.1,...))`
    """

    name: str
    values: tuple[float, ...]
    scale: Positive = 1.0
    unrotated_scale: Positive = 1.0

    def __post_init__(self):
        object.__setattr__(self, "values", as_floats(self.values))
        super().__post_init__()

    @property
    def logit_scale(self) -> float:
        """Scale of the logits; see `Rotary.logit_scale`."""
        return self.scale

    @property
    def unrotated_logit_scale(self) -> float:
        """Scale of unrotated features; see `Rotary.unrotated_logit_scale`."""
        return self.unrotated_scale

    def frequencies(self, rotary_dim: int) -> np.ndarray:
        """Return the frequencies; see `Rotary.frequencies`."""
        return np.array(self.values)

    @classmethod
    def from_variant(cls, variant: Rotary, name: str, head_dim: int) -> "Recorded":
        """Record the frequencies of `variant`, with expression `name`, in a head of `head_dim`.

        Raises:
          ValueError: if the frequencies depend on a row's length, or are not valid numbers.
        """
        # A single vector is recorded, which would be wrong for rows of other lengths.
        if variant.is_dynamic:
            raise ValueError(
                f"{name} has frequencies that depend on a row's length, which a run cannot record; "
                "put a dynamic variant into model/rotary"
            )
        return cls(
            name=name,
            values=variant.inv_freq(head_dim),  # pyright: ignore[reportArgumentType]
            scale=variant.logit_scale,
            unrotated_scale=variant.unrotated_logit_scale,
            log_n=variant.log_n,
        )
