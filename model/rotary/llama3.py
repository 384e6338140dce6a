"""Llama 3.1's stepwise scaling (Meta's llama-models, `apply_scaling`; `llama3` in transformers)."""

import dataclasses

import numpy as np

from model.rotary.base import Stretched, geometric_inv_freq
from settings.checks import Count, Positive


@dataclasses.dataclass(frozen=True, kw_only=True)
class Llama3(Stretched):
    """Short wavelengths are kept, long ones multiplied by `factor`, those between blended.

    A pair of wavelength λ keeps the share (L / λ - low) / (high - low), clipped to [0, 1], of its
    frequency, L = original_context_length. L / λ is the cycles the pair completes in the original
    context, so that this is `ntk_by_parts` with other thresholds. Llama 3.1 has a base of 5e5 and
    a factor of 8.

    Attributes:
      original_context_length: context the unstretched variant was trained at, tokens (8192).
      low_freq_factor: wavelengths longer than L / low are divided by `factor`.
      high_freq_factor: wavelengths shorter than L / high are kept.

    Cookbook:
      frequency: as ntk_by_parts, γ = (r−1)/(4−1) clipped
      source: Llama 3.1, [2407.21783](https://arxiv.org/abs/2407.21783) and Meta's code
      use: what Llama 3.1–3.3 use
      transformers: `llama3`
      write: `llama3(base=5e5,factor=8,original_context_length=8192)`
    """

    original_context_length: Count
    low_freq_factor: Positive = 1.0
    high_freq_factor: Positive = 4.0

    def __post_init__(self):
        super().__post_init__()
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
