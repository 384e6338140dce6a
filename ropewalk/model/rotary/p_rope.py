"""p-RoPE: the slowest pairs are unrotated (Barbero et al., arXiv 2410.06205, Section 6; Gemma)."""

import dataclasses

import numpy as np

from ropewalk.model.rotary.rope import Rope


@dataclasses.dataclass(frozen=True, kw_only=True)
class PRope(Rope):
    """RoPE over all features of a head, with its slowest pairs unrotated.

    `rotary_fraction` is the paper's p (Gemma's `rope_proportion`). Here the exponent runs over all
    features, so the fraction does not change the frequencies of pairs that rotate. Under every
    other variant the exponent runs over the rotated features only.

    Attributes:
      base: base of the geometric series, above 1.

    Cookbook:
      frequency: b^(−2i/head_dim), the slowest pairs 0
      source: Barbero et al., [2410.06205](https://arxiv.org/abs/2410.06205); Gemma
      use: unrotate the slowest pairs, keep the others
      transformers: `proportional`
      write: `p_rope(base=1e4,rotary_fraction=0.75)`
    """

    rope_type = "proportional"

    def inv_freq(self, head_dim: int) -> np.ndarray:
        """Return the series over all features, its tail set to zero; see `Rotary.inv_freq`."""
        num_rotated = self.rotary_dim(head_dim) // 2
        return np.where(np.arange(head_dim // 2) < num_rotated, self.frequencies(head_dim), 0.0)
