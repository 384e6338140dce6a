"""NTK-by-parts (bloc97, 2023; YaRN, arXiv 2309.00071, Section 3.2, Definition 2)."""

import dataclasses

import numpy as np

from ropewalk.model.rotary.base import Stretched, geometric_inv_freq
from ropewalk.utils.checks import Count, Positive


@dataclasses.dataclass(frozen=True, kw_only=True)
class NtkByParts(Stretched):
    """Fast pairs are kept, slow pairs divided by `factor`, with a ramp over cycles between.

    A pair with r cycles in the original context keeps the share
    (r - beta_slow) / (beta_fast - beta_slow), clipped to [0, 1], of its frequency. This is the
    definition in YaRN's paper. YaRN's released code and `yarn` use a ramp over the pair's index
    instead. There is no temperature.

    Attributes:
      original_context_length: trained context of the unstretched variant, tokens.
      beta_fast: pairs of more cycles than this over the original context are kept (β).
      beta_slow: pairs of fewer cycles than this are divided by `factor` (α).

    Cookbook:
      frequency: θᵢ(γ + (1−γ)/s), γ = (r−1)/(32−1) clipped, r = Lθᵢ/2π cycles
      source: YaRN, [2309.00071](https://arxiv.org/abs/2309.00071) Definition 2
      use: YaRN's paper without its temperature
      transformers: –
      write: `ntk_by_parts(base=1e4,factor=8,original_context_length=256)`
    """

    original_context_length: Count
    beta_fast: Positive = 32.0
    beta_slow: Positive = 1.0

    def __post_init__(self):
        super().__post_init__()
        if not self.beta_fast > self.beta_slow:
            raise ValueError(
                f"beta_fast={self.beta_fast!r} must be above beta_slow={self.beta_slow!r}"
            )

    def frequencies(self, rotary_dim: int) -> np.ndarray:
        """Return the frequencies; see `Rotary.frequencies`."""
        plain = geometric_inv_freq(self.base, rotary_dim)
        cycles = self.original_context_length * plain / (2 * np.pi)
        share = np.clip((cycles - self.beta_slow) / (self.beta_fast - self.beta_slow), 0, 1)
        return plain * (share + (1 - share) / self.factor)
