"""C8: do heads limit copying as they limit key-value recall?

Cost: 2 layers at 256 tokens train about 35 and 12 thousand tokens a second on one core with 1 and 4
heads. 8M tokens of four members take half an hour for each seed.
"""

from studies.capability.recipe import LONG, heads
from studies.capability.results import rise
from studies.card import Card, Claim, Measurement, Member


def member(base: str, number: int) -> Member:
    """Return a member with two layers that copies."""
    return Member(
        name=f"base={base},heads={number}",
        overrides=(
            "model.num_layers=2",
            *heads(number),
            f"model.rotary.base={base}",
            "data.retrieval_tasks=[lagcopy]",
            "evals.tasks=[lagcopy]",
        ),
    )


cards = [
    Card(
        name="C8",
        question="Do heads limit copying at a lag as they limit recall?",
        config=LONG,
        members=tuple(member(base, number) for base in ("10", "1e4") for number in (1, 4)),
        tokens=8_000_000,
        measurements=(Measurement(tasks=("lagcopy",)),),
        claims=(
            Claim(
                text="At base 10, L50 of copying is at least a quarter of an octave higher with "
                "four heads than with one.",
                measure=rise("base=10,heads=1", "base=10,heads=4"),
                at_least=0.25,
            ),
            Claim(
                text="At base 1e4, four heads raise L50 of copying by at most half an octave.",
                measure=rise("base=1e4,heads=1", "base=1e4,heads=4"),
                at_most=0.5,
            ),
        ),
        refuted_if="at base 10, L50 in copying does not depend on the number of heads",
    )
]
