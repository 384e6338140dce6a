"""YaRN (arXiv 2309.00071): slow pairs are interpolated, fast pairs kept, a ramp between."""

import dataclasses
import math

import numpy as np

from model.rotary.base import geometric_inv_freq
from model.rotary.ntk_by_parts import NtkByParts
from settings.checks import NonNegative


@dataclasses.dataclass(frozen=True, kw_only=True)
class Yarn(NtkByParts):
    """NTK-by-parts interpolation (Section 3.2) plus a temperature on the logits (Section 3.4).

    The ramp runs over the pair's index, as in the released code; `ntk_by_parts` has the paper's.

    Attributes:
      truncate: round the ramp's ends outwards to whole pairs (transformers' `truncate`).
      mscale: q and k are each multiplied by m(mscale) = 0.1 mscale ln(factor) + 1; 0 means no
        temperature, 1 is the paper's.
      mscale_all_dim: DeepSeek's: unrotated features have m(mscale_all_dim) for it, 0 none
        (DeepSeek-V2 and V3: the same as mscale). None: the same as those that rotate. (Their code
        multiplies all logits by m(mscale_all_dim)^2 and cos and sin by m(mscale) over it.)

    Cookbook:
      frequency: θᵢ kept, θᵢ/s, and a ramp over the pair index between; logits × (0.1 `mscale` ln s
        + 1)²
      source: YaRN, [2309.00071](https://arxiv.org/abs/2309.00071) and its code
      use: stretch with little fine-tuning
      transformers: `yarn`
      write: `yarn(base=1e4,factor=8,original_context_length=256)`
    """

    truncate: bool = True
    mscale: NonNegative = 1.0
    mscale_all_dim: NonNegative | None = None

    def __post_init__(self):
        super().__post_init__()
        if self.rotary_fraction < 1 and self.mscale_all_dim not in (None, self.mscale):
            raise ValueError(
                f"mscale_all_dim={self.mscale_all_dim!r} must equal mscale={self.mscale!r} where "
                f"rotary_fraction={self.rotary_fraction!r} is below 1: one head, one logit scale"
            )

    @property
    def logit_scale(self) -> float:
        """(0.1 ln s + 1)^2: the attention factor applies to q and to k alike (Eq. 22)."""
        return (0.1 * self.mscale * math.log(self.factor) + 1) ** 2

    @property
    def unrotated_logit_scale(self) -> float:
        """See `Rotary.unrotated_logit_scale`."""
        mscale = self.mscale if self.mscale_all_dim is None else self.mscale_all_dim
        return (0.1 * mscale * math.log(self.factor) + 1) ** 2

    def frequencies(self, rotary_dim: int) -> np.ndarray:
        """See `Rotary.frequencies`."""
        return geometric_inv_freq(self.base, rotary_dim) * self.kept(
            rotary_dim, math.log(self.base)
        )

    def kept(self, rotary_dim: int, log_base: float) -> np.ndarray:
        """What each pair's frequency is multiplied by, at a base of which only ln is given."""
        return 1 + self.interpolated(rotary_dim, log_base) * (1 / self.factor - 1)

    def interpolated(self, rotary_dim: int, log_base: float) -> np.ndarray:
        """How much of each pair's frequency is divided by `factor`, in [0, 1]."""

        def pair_of(cycles: float) -> float:
            """Index of the pair that completes this many cycles over the original context."""
            return rotary_dim * self._log_radians(cycles) / (2 * log_base)

        # Floor, ceiling and the clamp at rotary_dim - 1 (not at the last pair, rotary_dim / 2 - 1)
        # are the released code's; at small bases they decide the result.
        low, high = pair_of(self.beta_fast), pair_of(self.beta_slow)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, rotary_dim - 1)
        span = max(high - low, 1e-3)
        return np.clip((np.arange(rotary_dim // 2) - low) / span, 0, 1)

    def jumps(self, rotary_dim: int) -> list[float]:
        """Where, in ln(base), an end of the truncated ramp passes a whole pair; ascending."""
        ends = (self._log_radians(cycles) for cycles in (self.beta_fast, self.beta_slow))
        jumps = {rotary_dim * end / (2 * pair) for end in ends for pair in range(1, rotary_dim)}
        return sorted(jump for jump in jumps if jump > 0)

    def _log_radians(self, cycles: float) -> float:
        """ln of the tokens per radian of a pair of this many cycles over the original context."""
        return math.log(self.original_context_length / cycles / (2 * math.pi))
