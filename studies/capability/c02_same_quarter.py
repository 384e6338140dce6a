"""C2: do five frequency vectors with the same slowest pair have the same effective context?

All have a quarter period of 14.6 tokens and differ in their number of slow pairs. For B, A, E, D
and C the capability of one head at 21 tokens (D_1) is 1.2, 2.6, 2.7, 3.6 and 3.8, and the first
distance with B_m < 0 is 3, 5, 3, 15 and 15.

Cost: 4M tokens take a minute of one core for each member and seed.
"""

import itertools

import numpy as np

from studies.capability.recipe import SHORT
from studies.capability.results import least, rise
from studies.card import Card, Claim, Member

SLOWEST = 10 ** (-62 / 64)  # radians per token: the slowest pair of base 10 in a head of 64
NUM_PAIRS = 32


def fast_and_slow(num_fast: int) -> str:
    """Return an override: `num_fast` pairs from 1 to 0.5 radians per token, the others slowest."""
    fast = np.linspace(1, 0.5, num_fast).round(6).tolist()
    values = [*fast, *[SLOWEST] * (NUM_PAIRS - num_fast)]
    return f"model.rotary=explicit(values=({','.join(map(str, values))}))"


ORDER = ("B", "A", "E", "D", "C")

cards = [
    Card(
        name="C2",
        question="Do five frequency vectors with one quarter period have the same L50?",
        config=SHORT,
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
                text="L50 rises in the order B, A, E, D, C: the least rise, in octaves.",
                measure=least(*(rise(*pair) for pair in itertools.pairwise(ORDER))),
                at_least=0,
            ),
            Claim(
                text="The quarter period, equal for all, does not decide: L50 of C is an octave or "
                "more above that of B.",
                measure=rise("B", "C"),
                at_least=1,
            ),
        ),
        refuted_if="the order breaks by more than the spread of the seeds",
    )
]
