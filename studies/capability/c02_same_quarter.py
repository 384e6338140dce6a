"""C2: five vectors of frequencies whose slowest pair is the same: do they see equally far?

The quarter period of all is 14.6 tokens. They differ in how many pairs are slow: what a head can
tell apart at 21 tokens (D_1) is 1.2, 2.6, 2.7, 3.6 and 3.8 for B, A, E, D and C, and the first
distance with B_m < 0 is 3, 5, 3, 15 and 15.

Cost: 4M tokens are a minute of one core for each member and seed.
"""

import itertools

import numpy as np

from studies.capability.recipe import SHORT, octaves, when_run
from studies.card import Card, Claim, Measured, Member

SLOWEST = 10 ** (-62 / 64)  # radians per token: the slowest pair of base 10 in a head of 64
NUM_PAIRS = 32


def fast_and_slow(num_fast: int) -> str:
    """An override: so many pairs from 1 to 0.5 radians per token, all others at the slowest."""
    fast = np.linspace(1, 0.5, num_fast).round(6).tolist()
    values = [*fast, *[SLOWEST] * (NUM_PAIRS - num_fast)]
    return f"model.rotary=explicit(values=({','.join(map(str, values))}))"


def out_of_order(*vectors: list[Measured]) -> bool:
    """Whether a vector sees less far in every seed than the one before it in any."""
    return any(
        max(one.l50 for one in after) < min(one.l50 for one in before)
        for before, after in itertools.pairwise(vectors)
    )


ORDER = ("B", "A", "E", "D", "C")

cards = [
    Card(
        name="C2",
        question="Do five vectors of frequencies with one quarter period see equally far?",
        shared=SHORT,
        members=(
            Member(name="B", overrides=(fast_and_slow(31),)),
            Member(name="A", overrides=("model.rotary.base=10",)),
            Member(name="E", overrides=(fast_and_slow(24),)),
            Member(name="D", overrides=(fast_and_slow(16),)),
            Member(name="C", overrides=(fast_and_slow(0),)),
        ),
        tokens=4_000_000,
        claims=(
            Claim(
                text="L50 rises in the order B, A, E, D, C, as far as seeds tell it.",
                refuted=when_run(ORDER, out_of_order),
            ),
            Claim(
                text="The quarter period, the same for all, does not decide: C sees at least twice "
                "as far as B.",
                refuted=when_run(("B", "C"), lambda b, c: octaves(c) - octaves(b) < 1),
            ),
        ),
        refuted_if="the order breaks by more than seeds differ",
    )
]
