"""Learned frequencies: training changes the frequency of every pair of every key/value head."""

import dataclasses

import numpy as np

from ropewalk.model.rotary.base import Base, Rotary, geometric_inv_freq
from ropewalk.utils.checks import SinglePositive


@dataclasses.dataclass(frozen=True, kw_only=True)
class Learned(Rotary):
    """A geometric series that training starts from, one trained vector per key/value head.

    A checkpoint holds the changes (parameter `frequency_offset`, `model.positions`); a run that is
    loaded has the learned frequencies. AdaRoPE and others train frequencies too.

    Attributes:
      base: base of the series at the start of training.
      learning_rate: peak learning rate of the frequencies, with the schedule of `train`: the
        relative change of a frequency per update is about this large (between half of it and it).

    Cookbook:
      frequency: b^(−2i/d) at the start, then trained
      source: –
      use: frequencies that the data choose
      transformers: `longrope`, if all heads learned one vector
      write: `learned(base=1e4,learning_rate=1e-3)`
    """

    base: Base
    learning_rate: SinglePositive = 1e-3

    def frequencies(self, rotary_dim: int) -> np.ndarray:
        """Return the frequencies at the start; see `Rotary.frequencies`."""
        return geometric_inv_freq(self.base, rotary_dim)

    def offset_units(self, head_dim: int) -> np.ndarray:
        """Return what one unit of each pair's parameter adds, float64 `[R]`, cycles per token.

        It is the power of two at or below the pair's frequency at the start, so that a product
        with it is exact and one learning rate suits all pairs; 0 for an unrotated pair.
        """
        cycles = self.inv_freq(head_dim) / (2 * np.pi)
        exponents = np.floor(np.log2(cycles, out=np.zeros_like(cycles), where=cycles > 0))
        return np.where(cycles > 0, 2.0**exponents, 0.0)
