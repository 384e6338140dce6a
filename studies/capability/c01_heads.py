"""C1: what is the effective context of one layer with 1, 2, 4 and 8 heads, at one base?

Cost: at 256 tokens one core trains about 70, 50, 39 and 16 thousand tokens a second with 1, 2, 4
and 8 heads. 12M tokens per member take 40 minutes for each seed.
"""

from studies.capability.recipe import LONG, heads
from studies.capability.results import l50, rise
from studies.card import Card, Claim, Member


def member(base: int, number: int) -> Member:
    """Return a member with a base and a number of heads."""
    rotary = f"model.rotary.base={base}"
    return Member(name=f"base={base},heads={number}", overrides=(rotary, *heads(number)))


cards = [
    Card(
        name="C1",
        question="How does effective context grow from 1 to 2, 4 and 8 heads, at one base?",
        config=LONG,
        members=tuple(member(10, number) for number in (1, 2, 4, 8))
        + tuple(member(30, number) for number in (1, 4)),
        tokens=12_000_000,
        claims=(
            Claim(
                text="L50 of one head of base 10 is below 29 tokens, half its slowest period.",
                measure=l50("base=10,heads=1"),
                at_most=29,
            ),
            Claim(
                text="L50 of eight heads of base 10 is above 128 tokens.",
                measure=l50("base=10,heads=8"),
                at_least=128,
            ),
            Claim(
                text="L50 of four heads of base 30 is an octave or more above that of one head.",
                measure=rise("base=30,heads=1", "base=30,heads=4"),
                at_least=1,
            ),
        ),
        refuted_if="one head of base 10 has an L50 above 29 tokens, or eight have one below 128",
    )
]
