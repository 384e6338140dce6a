"""YaRN (arXiv 2309.00071): slow pairs are interpolated, fast pairs kept, a ramp between."""

import dataclasses
import math

import numpy as np

from model.rotary.base import Rotary, check_base, check_factor, check_positive, geometric_inv_freq


@dataclasses.dataclass(frozen=True, kw_only=True)
class Yarn(Rotary):
    """NTK-by-parts interpolation (Section 3.2) plus a temperature on the logits (Section 3.4).

    The ramp runs over the pair's index, as in the released code; `ntk_by_parts` has the paper's.

    Attributes:
      base: the base of the schedule being stretched.
      factor: target context over original context, at least 1.
      original_context_length: context the unstretched schedule was trained at, tokens.
      beta_fast: pairs that turn more often than this over the original context are kept.
      beta_slow: pairs that turn less often than this are divided by `factor`.
      truncate: round the ramp's ends outwards to whole pairs (transformers' `truncate`).
      mscale: q and k are each multiplied by m(mscale) = 0.1 mscale ln(factor) + 1; 0 turns the
        temperature off, 1 is the paper's.
      mscale_all_dim: DeepSeek's: features that do not turn have m(mscale_all_dim) for it, 0 none
        (DeepSeek-V2 and V3: the same as mscale). None: the same as those that turn. (Their code
        multiplies all logits by m(mscale_all_dim)^2 and cos and sin by m(mscale) over it.)
    """

    base: float
    factor: float
    original_context_length: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    mscale: float = 1.0
    mscale_all_dim: float | None = None

    def __post_init__(self):
        super().__post_init__()
        check_base(self.base)
        check_factor(self.factor)
        check_positive(self, "original_context_length", "beta_fast", "beta_slow")
        if not self.beta_fast > self.beta_slow:
            raise ValueError(
                f"beta_fast={self.beta_fast!r} must be above beta_slow={self.beta_slow!r}"
            )
        if not isinstance(self.truncate, bool):
            raise ValueError(f"truncate must be True or False, got {self.truncate!r}")
        for name in ("mscale", "mscale_all_dim"):
            value = getattr(self, name)
            optional = value is None and name == "mscale_all_dim"
            if not (optional or (isinstance(value, int | float) and 0 <= value < math.inf)):
                raise ValueError(f"{name} must be a finite number of at least 0, got {value!r}")
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
    def resting_logit_scale(self) -> float:
        """See `Rotary.resting_logit_scale`."""
        mscale = self.mscale if self.mscale_all_dim is None else self.mscale_all_dim
        return (0.1 * mscale * math.log(self.factor) + 1) ** 2

    def frequencies(self, rotary_dim: int) -> np.ndarray:
        """See `Rotary.frequencies`."""

        def pair_that_turns(turns: float) -> float:
            """Index of the pair that makes this many turns over the original context."""
            wavelength = self.original_context_length / turns
            return rotary_dim * math.log(wavelength / (2 * math.pi)) / (2 * math.log(self.base))

        # Floor, ceiling and the clamp at rotary_dim - 1 (not at the last pair, rotary_dim / 2 - 1)
        # are the released code's; at small bases they decide the result.
        low, high = pair_that_turns(self.beta_fast), pair_that_turns(self.beta_slow)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, rotary_dim - 1)
        span = max(high - low, 1e-3)
        interpolated = np.clip((np.arange(rotary_dim // 2) - low) / span, 0, 1)
        share_kept = 1 + interpolated * (1 / self.factor - 1)
        return geometric_inv_freq(self.base, rotary_dim) * share_kept
