"""YaRN (arXiv 2309.00071): slow pairs are interpolated, fast pairs kept, with a ramp between."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ropewalk.model.rotary.base import HfHead, Rotary, geometric_inv_freq
from ropewalk.model.rotary.ntk_by_parts import NtkByParts
from ropewalk.utils.checks import NonNegative


def temperature(mscale: float, factor: float) -> float:
    """Return 0.1 mscale ln(factor) + 1, which multiplies q and k each (Eq. 22)."""
    return 0.1 * mscale * math.log(factor) + 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Yarn(NtkByParts):
    """NTK-by-parts interpolation (Section 3.2) plus a temperature on the logits (Section 3.4).

    The ramp runs over the pair's index, as in the released code; `ntk_by_parts` has the paper's.

    Attributes:
      truncate: round the ends of the ramp outwards to integers (transformers' `truncate`).
      mscale: q and k are each multiplied by m(mscale) = 0.1 mscale ln(factor) + 1; 0 means no
        temperature, 1 is the paper's.
      mscale_all_dim: DeepSeek's: the same for unrotated features, m(mscale_all_dim); DeepSeek-V2
        and V3 set it to mscale. None: the same as for rotated features. (DeepSeek's code multiplies
        all logits by m(mscale_all_dim)^2, and cos and sin by m(mscale) / m(mscale_all_dim).)

    Cookbook:
      frequency: θᵢ kept, θᵢ/s, and a ramp over the pair index between; logits × (0.1 `mscale` ln s
        + 1)²
      source: YaRN, [2309.00071](https://arxiv.org/abs/2309.00071) and its code
      use: stretch with little fine-tuning
      transformers: `yarn`
      write: `yarn(base=1e4,factor=8,original_context_length=256)`
    """

    rope_type = "yarn"

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
        """Square of the temperature, which multiplies both q and k."""
        return temperature(self.mscale, self.factor) ** 2

    @property
    def unrotated_logit_scale(self) -> float:
        """Scale of unrotated features; see `Rotary.unrotated_logit_scale`."""
        mscale = self.mscale if self.mscale_all_dim is None else self.mscale_all_dim
        return temperature(mscale, self.factor) ** 2

    def frequencies(self, rotary_dim: int) -> np.ndarray:
        """Return the frequencies; see `Rotary.frequencies`."""

        def pair_of(cycles: float) -> float:
            """Return the index of the pair with this many cycles in the original context."""
            tokens_per_radian = self.original_context_length / cycles / (2 * math.pi)
            return rotary_dim * math.log(tokens_per_radian) / (2 * math.log(self.base))

        # Floor, ceiling, and the clamp at rotary_dim - 1 (not at the last pair, rotary_dim / 2 - 1)
        # follow the released code; at small bases they determine the result. Where the ends cross
        # (beta_fast cycles within the context even at index rotary_dim), all pairs are kept, as in
        # the paper; the released code would divide all of them by the factor.
        low, high = pair_of(self.beta_fast), pair_of(self.beta_slow)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, rotary_dim - 1)
        span = max(high - low, 1e-3)
        slowed = np.clip((np.arange(rotary_dim // 2) - low) / span, 0, 1)
        return geometric_inv_freq(self.base, rotary_dim) * (1 + slowed * (1 / self.factor - 1))

    def to_hf(self, head: HfHead) -> dict[str, Any] | None:
        """Return the rope parameters, or None if version 4 of transformers reads others.

        That version takes `context / original_context_length` as the factor and has no `truncate`.
        """
        if not self.truncate or self.factor * self.original_context_length != head.context:
            return None
        unrotated = self.unrotated_logit_scale if head.mla else 1.0
        rope: dict[str, Any] = dict(super().to_hf(head) or {})
        del rope["truncate"]
        mscale, all_dim = rope.pop("mscale"), rope.pop("mscale_all_dim")
        rope["attention_factor"] = math.sqrt(self.logit_scale / unrotated)
        if unrotated != 1:
            rope |= {"mscale": mscale, "mscale_all_dim": mscale if all_dim is None else all_dim}
        return rope

    @classmethod
    def from_hf(cls, rope: Mapping[str, Any], head: HfHead, length: int) -> Rotary | None:
        """Return the variant; see `Rotary.from_hf`. None if the factor is at most 1."""
        factor, mscale, all_dim = rope["factor"], rope.get("mscale"), rope.get("mscale_all_dim")
        if factor <= 1:
            return None
        # Factor of cosines and sines. MLA also multiplies all logits by temperature(all_dim)^2.
        attention = temperature(1, factor)
        if mscale and all_dim:
            attention = temperature(mscale, factor) / temperature(all_dim, factor)
        attention = rope.get("attention_factor", attention)
        all_dim = (all_dim or 0.0) if head.mla else 0.0
        excess = attention * temperature(all_dim, factor) - 1
        mscale = round(max(excess / (0.1 * math.log(factor)), 0.0), 12)  # without rounding errors
        fields = {
            "mscale": mscale,
            "mscale_all_dim": all_dim if head.mla and all_dim != mscale else None,
        }
        return super().from_hf({**rope, **fields}, head, length)
