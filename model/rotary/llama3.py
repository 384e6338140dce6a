"""Llama 3.1's stepwise scaling (Meta's llama-models, `apply_scaling`; `llama3` in transformers)."""

import dataclasses

import numpy as np

from model.rotary.base import Rotary, check_base, check_factor, check_positive, geometric_inv_freq


@dataclasses.dataclass(frozen=True, kw_only=True)
class Llama3(Rotary):
    """Short wavelengths are kept, long ones multiplied by `factor`, those between blended.

    A pair of wavelength λ keeps the share (L / λ - low) / (high - low), clipped to [0, 1], of its
    frequency, L = original_context_length. L / λ is how often the pair turns in the original
    context, so that this is `ntk_by_parts` with other thresholds.

    Attributes:
      base: the base of the schedule being stretched (Llama 3.1: 5e5).
      factor: target context over original context, at least 1 (8).
      original_context_length: context the unstretched schedule was trained at, tokens (8192).
      low_freq_factor: wavelengths longer than L / low are divided by `factor`.
      high_freq_factor: wavelengths shorter than L / high are kept.
    """

    base: float
    factor: float
    original_context_length: int
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0

    def __post_init__(self):
        super().__post_init__()
        check_base(self.base)
        check_factor(self.factor)
        check_positive(self, "original_context_length", "low_freq_factor", "high_freq_factor")
        if not self.high_freq_factor > self.low_freq_factor:
            raise ValueError(
                f"high_freq_factor={self.high_freq_factor!r} must be above "
                f"low_freq_factor={self.low_freq_factor!r}"
            )

    def frequencies(self, rotary_dim: int) -> np.ndarray:
        """See `Rotary.frequencies`."""
        plain = geometric_inv_freq(self.base, rotary_dim)
        wavelength = 2 * np.pi / plain
        low, high = self.low_freq_factor, self.high_freq_factor
        kept = np.clip((self.original_context_length / wavelength - low) / (high - low), 0, 1)
        return plain * (kept + (1 - kept) / self.factor)
