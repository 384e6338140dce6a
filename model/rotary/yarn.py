"""YaRN (arXiv 2309.00071): slow pairs are interpolated, fast pairs kept, a ramp between."""

import dataclasses
import math

import numpy as np

from model.rotary.base import Rotary, check_base, check_positive, geometric_inv_freq


@dataclasses.dataclass(frozen=True, kw_only=True)
class Yarn(Rotary):
    """NTK-by-parts interpolation (Section 3.2) plus a temperature on the logits (Section 3.4).

    Attributes:
      base: the base of the schedule being stretched.
      factor: target context over original context, >= 1.
      original_context_length: context the unstretched schedule was trained at, tokens.
      beta_fast: pairs that turn more often than this over the original context are kept.
      beta_slow: pairs that turn less often than this are divided by `factor`.
    """

    base: float
    factor: float
    original_context_length: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0

    def __post_init__(self):
        super().__post_init__()
        check_base(self.base)
        check_positive(self, "original_context_length", "beta_fast", "beta_slow")
        if not self.factor >= 1:
            raise ValueError(f"factor must be at least 1, got {self.factor!r}")
        if not self.beta_fast > self.beta_slow:
            raise ValueError(
                f"beta_fast={self.beta_fast!r} must be above beta_slow={self.beta_slow!r}"
            )

    @property
    def logit_scale(self) -> float:
        """(0.1 ln s + 1)^2: the attention factor applies to q and to k alike (Eq. 22)."""
        return (0.1 * math.log(self.factor) + 1) ** 2

    def frequencies(self, rotary_dim: int) -> np.ndarray:
        """See `Rotary.frequencies`."""

        def pair_that_turns(turns: float) -> float:
            """Index of the pair that makes this many turns over the original context."""
            wavelength = self.original_context_length / turns
            return rotary_dim * math.log(wavelength / (2 * math.pi)) / (2 * math.log(self.base))

        # Floor, ceiling and the clamp at rotary_dim - 1 (not at the last pair, rotary_dim / 2 - 1)
        # are the released code's; at small bases they decide the result.
        low = max(math.floor(pair_that_turns(self.beta_fast)), 0)
        high = min(math.ceil(pair_that_turns(self.beta_slow)), rotary_dim - 1)
        span = max(high - low, 1e-3)
        interpolated = np.clip((np.arange(rotary_dim // 2) - low) / span, 0, 1)
        share_kept = 1 + interpolated * (1 / self.factor - 1)
        return geometric_inv_freq(self.base, rotary_dim) * share_kept
