"""C11: at equal parameters, does the number of heads or their size decide effective context?

1 x 64, 2 x 32 and 4 x 16 features have equal numbers of parameters, and so do 1 x 256 and 4 x 64.

Cost: 4M tokens take one to two minutes of one core for each member and seed.
"""

from studies.capability.recipe import SHORT, heads
from studies.capability.results import gain, l50, rise
from studies.card import Card, Claim, Member

SIZES = (1, 64), (2, 32), (4, 16), (1, 256), (4, 64)


def member(number: int, size: int) -> Member:
    """Return a member with `number` heads of `size` features and base 10."""
    return Member(name=f"{number}x{size}", overrides=heads(number, size))


cards = [
    Card(
        name="C11",
        question="At equal parameters, do more heads or larger heads have the higher L50?",
        config=SHORT,
        members=tuple(member(*size) for size in SIZES),
        tokens=4_000_000,
        claims=(
            Claim(
                text="4 heads of 16 features gain at most 0.05 mean accuracy over 1 head of 64.",
                measure=gain("1x64", "4x16"),
                at_most=0.05,
            ),
            Claim(
                text="L50 of 1 head of 256 features is at most an octave above 30 tokens.",
                measure=l50("1x256"),
                at_most=60,
            ),
            Claim(
                text="L50 of 4 heads of 64 features is an octave or more above 1 head of 256.",
                measure=rise("1x256", "4x64"),
                at_least=1,
            ),
        ),
        refuted_if="4 heads of 16 features answer at every distance, or 1 of 256 does",
    )
]
