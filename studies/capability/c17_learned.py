"""C17: do learned frequencies recall farther than fixed ones, and what do they become?

Training changes the frequency of every pair of every head (`learned`), at the learning rate of the
weights, 5e-3, or at its default. The minimal head trains its frequencies too, so its forecast is
one of accuracy and of frequencies. It forecasts for one head that starts at base 10:

    - Pairs meet at multiples of one frequency, 0.115 to 0.125 radians per token: a code with a
      period of 50 to 55 tokens. The slowest eight pairs lie within 5% of each other there.
    - So the slowest pair gets faster: it starts at 0.107. Gradients do not stop the rotation,
      though p-RoPE, which has two pairs without any, recalls far more (C16).
    - Mean accuracy is 0.61, where the forecast of fixed frequencies is 0.45 and that of the
      design of C16 0.63. Four heads have 0.89, each with another slowest frequency.

One head that starts at base 100, with 256 tokens, goes the other way: its three slowest pairs fall
below 0.006 (the slowest starts at 0.012), mean accuracy is 1.00, that of fixed frequencies 0.60.

Fixed frequencies at as many tokens are those of C11 (base 10, one and four heads of 64), C16 (the
best single base under a constraint, the design, and p-RoPE) and C5 (base 100, 256 tokens).

Cost: 50 seconds of one busy core for each member with one head and seed.
"""

import numpy as np

from studies.capability.recipe import LONG, SHORT, heads
from studies.capability.results import frequency_measure, mean_accuracy
from studies.card import Card, Claim, Member

AT_256 = (
    f"data.context_length={LONG.data.context_length}",
    f"data.batch_size={LONG.data.batch_size}",
)


def member(base: int, number: int, rate: float = 5e-3, *more: str) -> Member:
    """Return a member with `number` heads whose frequencies start as those of a base."""
    rotary = f"model.rotary=learned(base={base},learning_rate={rate:g})"
    name = f"base={base},heads={number}" + (f",rate={rate:g}" if rate != 5e-3 else "")
    return Member(name=name, overrides=(*heads(number), rotary, *more))


cards = [
    Card(
        name="C17",
        question="Do learned frequencies recall farther than fixed ones?",
        config=SHORT,
        members=(
            member(10, 1),
            member(100, 1, 5e-3, *AT_256),
            member(10, 4),
            member(10, 1, 1e-3),
            member(100, 4, 5e-3, *AT_256),
        ),
        tokens=1_000_000,
        shares=(1 / 4, 1),
        claims=(
            Claim(
                text="From base 10, mean accuracy of one head is between 0.42 and 0.75: above that "
                "of fixed frequencies, 0.37 (C11), and below that of two still pairs, 0.91 (C16).",
                measure=mean_accuracy("base=10,heads=1"),
                at_least=0.42,
                at_most=0.75,
            ),
            Claim(
                text="From base 100 at 256 tokens, mean accuracy of one head is 0.68 or more, "
                "where fixed frequencies have 0.48 (C5).",
                measure=mean_accuracy("base=100,heads=1"),
                at_least=0.68,
            ),
            # The last two were conditions of `refuted_if` before they were claims.
            Claim(
                text="From base 10, the median of the eight slowest pairs is above 0.107 radians "
                "per token, where the slowest pair starts.",
                measure=frequency_measure("base=10,heads=1", lambda x: float(np.median(x[:8]))),
                at_least=0.107,
            ),
            Claim(
                text="From base 100, the slowest pair gets slower than 0.0115 radians per token.",
                measure=frequency_measure("base=100,heads=1", lambda x: float(x[0])),
                at_most=0.0115,
            ),
        ),
        is_blind=True,
        refuted_if="mean accuracy with learned frequencies is not higher than with those at the "
        "start; or from base 10 the median of the eight slowest pairs is below 0.107 or 10% above "
        "the slowest pair; or from base 100 the slowest pair does not get slower",
    )
]
