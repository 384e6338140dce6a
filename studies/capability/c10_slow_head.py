"""C10: does one slow head among fast ones give all answers at long distances?

Cost: 8M tokens take four minutes of one core for each member and seed.
"""

from studies.capability.recipe import LONG, heads
from studies.capability.results import Measure, difference, rise
from studies.card import Card, Claim, Measurement, Member


def member(name: str, *bases: str) -> Member:
    """Return a member with one layer and a base for each head."""
    variants = ",".join(f"rope(base={base})" for base in bases)
    return Member(name=name, overrides=(*heads(len(bases)), f"model.rotary=[[{variants}]]"))


def masking(name: str) -> Measure:
    """Return the measure of what masking the last head does to L50, octaves."""
    return rise(name, name, "whole", "last head masked")


cards = [
    Card(
        name="C10",
        question="Does one slow head among fast ones give the answers at long distances?",
        config=LONG,
        members=(
            member("one-slow", "10", "10", "10", "1e4"),
            member("none-slow", "10", "10", "10", "10"),
        ),
        tokens=8_000_000,
        measurements=(
            Measurement(),
            Measurement(name="last head masked", masked_heads=((0, 3),)),
            Measurement(name="last head alone", masked_heads=((0, 0), (0, 1), (0, 2))),
        ),
        claims=(
            Claim(
                text="Masking the slow head lowers L50 by half an octave or more.",
                measure=masking("one-slow"),
                at_most=-0.5,
            ),
            Claim(
                text="The slow head gives the far answers: masking it lowers L50 by more octaves "
                "than masking one of four fast heads.",
                measure=difference(masking("one-slow"), masking("none-slow")),
                at_most=0,
            ),
        ),
        refuted_if="masking the slow head changes nothing at long distances",
    )
]
