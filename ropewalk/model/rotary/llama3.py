"""Llama 3.1's stepwise scaling (Meta's llama-models, `apply_scaling`; `llama3` in transformers)."""

import dataclasses

import numpy as np

from ropewalk.model.rotary.base import Stretched, geometric_inv_freq
from ropewalk.utils.checks import Count, Positive


@dataclasses.dataclass(frozen=True, kw_only=True)
class Llama3(Stretched):
    """Short wavelengths are kept, long ones multiplied by `factor`, those between interpolated.

    A pair of wavelength λ keeps the share (L / λ - low) / (high - low), clipped to [0, 1], of its
    frequency, where L = original_context_length. The pair completes L / λ cycles in the original
    context, so this is `ntk_by_parts` with other thresholds. Llama 3.1 has base 5e5 and factor 8.

    Attributes:
      original_context_length: trained context of the unstretched variant, tokens (8192).
      low_freq_factor: wavelengths longer than L / low are divided by `factor`.
      high_freq_factor: wavelengths shorter than L / high are kept.

    Cookbook:
      frequency: as ntk_by_parts, γ = (r−1)/(4−1) clipped
      source: Llama 3.1, [2407.21783](https://arxiv.org/abs/2407.21783) and Meta's code
      use: Llama 3.1–3.3
      transformers: `llama3`
      write: `llama3(base=5e5,factor=8,original_context_length=8192)`
    """

    rope_type = "llama3"

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
        """Return the frequencies; see `Rotary.frequencies`."""
        plain = geometric_inv_freq(self.base, rotary_dim)
        wavelength = 2 * np.pi / plain
        low, high = self.low_freq_factor, self.high_freq_factor
        share = np.clip((self.original_context_length / wavelength - low) / (high - low), 0, 1)
        return plain * (share + (1 - share) / self.factor)
