"""C5: does effective context fall with trained length if the number of answers is equal?

Rows, pairs and answers per octave of distance are equal at all lengths. A longer row only has more
filler, and one octave more. Tokens are therefore unequal: a member at 128 trains on half of the
card's tokens, and one at 512 on twice as many.

Cost: 4, 8 and 16M tokens take 1, 2 and 5 minutes of one core for each member and seed.
"""

from studies.capability.recipe import LONG
from studies.capability.results import rise
from studies.card import Card, Claim, Member

LENGTHS = 128, 256, 512


def member(base: int, length: int) -> Member:
    """Return a member with a base and a trained length."""
    overrides = f"model.rotary.base={base}", f"data.context_length={length}"
    return Member(name=f"base={base},T={length}", overrides=overrides)


cards = [
    Card(
        name="C5",
        question="Does effective context fall with trained length, at equal rows and answers?",
        config=LONG,
        members=tuple(member(base, length) for base in (10, 30, 100) for length in LENGTHS),
        tokens=8_000_000,
        claims=tuple(
            Claim(
                text=f"At base {base}, L50 falls by no more than 0.3 octaves from 128 to 512.",
                measure=rise(f"base={base},T=128", f"base={base},T=512"),
                at_least=-0.3,
            )
            for base in (10, 30, 100)
        ),
        refuted_if="L50 falls by more than 0.3 octaves",
    )
]
