"""C5: does a longer trained context cost effective context, if the answers are as many?

Rows, pairs and answers in an octave of distance are equal at all lengths; a longer row only has
more filler, and one octave more. So tokens are not equal: a member at 128 trains on half as many
as the card says, one at 512 on twice as many.

Cost: 4, 8 and 16M tokens are 1, 2 and 5 minutes of one core for each member and seed.
"""

from studies.capability.recipe import LONG, octaves, when_run
from studies.card import Card, Claim, Member

LENGTHS = 128, 256, 512


def name(base: int, length: int) -> str:
    """Of a member."""
    return f"base={base},T={length}"


def member(base: int, length: int) -> Member:
    """A base at a trained length, in rows as many as at any other."""
    overrides = f"model.rotary.base={base}", f"data.context_length={length}"
    return Member(name=name(base, length), overrides=overrides)


cards = [
    Card(
        name="C5",
        question="Does effective context fall with trained length, at equal rows and answers?",
        shared=LONG,
        members=tuple(member(base, length) for base in (10, 30, 100) for length in LENGTHS),
        tokens=8_000_000,
        claims=tuple(
            Claim(
                text=f"At base {base}, L50 falls by no more than 0.3 octaves from 128 to 512.",
                refuted=when_run(
                    (name(base, 128), name(base, 512)),
                    lambda short, long: octaves(short) - octaves(long) > 0.3,
                ),
            )
            for base in (10, 30, 100)
        ),
        refuted_if="L50 still falls by more than 0.3 octaves",
    )
]
