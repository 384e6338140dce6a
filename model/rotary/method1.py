"""Method 1 of Men et al. 2024 (arXiv 2405.14591, Section 5.5): one large base."""

import dataclasses

from model.rotary.base import Base
from model.rotary.rope import Rope


@dataclasses.dataclass(frozen=True, kw_only=True)
class Method1(Rope):
    """`base ** (-2 i / d)`: the paper takes Llama 2 from 4k to 32k by a base of 5e6.

    No pair meets an angle it has not seen, and B_m stays positive; `method2` shares the first
    property only (Table 4).

    Attributes:
      base: the paper's by default. The method is this number, hence the one default base here.

    Cookbook:
      frequency: 5e6^(−2i/d)
      source: Men et al., [2405.14591](https://arxiv.org/abs/2405.14591) §5.5
      use: the paper's good example: no unseen angle, B_m ≥ 0
      transformers: `default`
      write: `method1`
    """

    base: Base = 5e6
