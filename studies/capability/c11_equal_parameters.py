"""C11: at equal parameters, does the number of heads or their size decide effective context?

1 x 64, 2 x 32 and 4 x 16 features have equal numbers of parameters, and so do 1 x 256 and 4 x 64.

Cost: 4M tokens take one to two minutes of one core for each member and seed.
"""

import math

from studies.capability.recipe import SHORT, accuracy, heads, octaves
from studies.card import Card, Claim, Member

SIZES = (1, 64), (2, 32), (4, 16), (1, 256), (4, 64)


def member(number: int, size: int) -> Member:
    """Return a member with `number` heads of `size` features and base 10."""
    return Member(name=f"{number}x{size}", overrides=heads(number, size))


cards = [
    Card(
        name="C11",
        question="At equal parameters, do more heads or larger heads have the higher L50?",
        shared=SHORT,
        members=tuple(member(*size) for size in SIZES),
        tokens=4_000_000,
        claims=(
            Claim(
                "4 heads of 16 features gain at most 0.05 mean accuracy over 1 head of 64.",
                ("1x64", "4x16"),
                lambda h1, h4: accuracy(h4) > accuracy(h1) + 0.05,
            ),
            Claim(
                "L50 of 1 head of 256 features is at most an octave above 30 tokens.",
                ("1x256",),
                lambda seeds: octaves(seeds) > math.log2(60),
            ),
            Claim(
                "L50 of 4 heads of 64 features is an octave or more above 1 head of 256.",
                ("1x256", "4x64"),
                lambda h1, h4: octaves(h4) - octaves(h1) < 1,
            ),
        ),
        refuted_if="4 heads of 16 features answer at every distance, or 1 of 256 does",
    )
]
