"""C8: is it the same in copying as in key-value recall?

Cost: 2 layers at 256 tokens train about 35 and 12 thousand tokens a second on one core with 1 and 4
heads; 8M tokens of four members are half an hour for each seed.
"""

from studies.capability.recipe import LONG, heads, octaves, when_run
from studies.card import Card, Claim, Measurement, Member


def name(base: str, number: int) -> str:
    """Of a member."""
    return f"base={base},heads={number}"


def member(base: str, number: int) -> Member:
    """Two layers, which copy."""
    return Member(
        name=name(base, number),
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
        question="Do heads limit copying at a lag as they do recall?",
        shared=LONG,
        members=tuple(member(base, number) for base in ("10", "1e4") for number in (1, 4)),
        tokens=8_000_000,
        measurements=(Measurement(tasks=("lagcopy",)),),
        claims=(
            Claim(
                text="At base 10 four heads copy from at least a quarter of an octave farther than "
                "one.",
                refuted=when_run(
                    (name("10", 1), name("10", 4)),
                    lambda one, four: octaves(four) - octaves(one) < 0.25,
                    task="lagcopy",
                ),
            ),
            Claim(
                text="At base 1e4 one head copies as far as four, to half an octave.",
                refuted=when_run(
                    (name("1e4", 1), name("1e4", 4)),
                    lambda one, four: octaves(four) - octaves(one) > 0.5,
                    task="lagcopy",
                ),
            ),
        ),
        refuted_if="how far base 10 copies has nothing to do with the number of heads",
    )
]
