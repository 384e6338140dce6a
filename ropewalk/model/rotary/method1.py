"""Method 1 of Men et al. 2024 (arXiv 2405.14591, Section 5.5): one large base."""

import dataclasses

from ropewalk.model.rotary.base import Base
from ropewalk.model.rotary.rope import Rope


@dataclasses.dataclass(frozen=True, kw_only=True)
class Method1(Rope):
    """`base ** (-2 i / d)`: the paper extends Llama 2 from 4k to 32k with base 5e6.

    Every angle occurred in training, and B_m stays positive. `method2` has only the first property
    (Table 4).

    Attributes:
      base: the paper's by default. The method is this number, so only this variant has a default.

    Cookbook:
      frequency: 5e6^(−2i/d)
      source: Men et al., [2405.14591](https://arxiv.org/abs/2405.14591) §5.5
      use: the paper's positive example: no unseen angle, B_m ≥ 0
      transformers: `default`
      write: `method1`
    """

    base: Base = 5e6
