"""C6: do the two tricks that make recall learnable decide the effective context?

`align_query_key` starts every head at phase 0 in one window. `shift_keys` (key smearing) lets one
layer compute what otherwise takes two.

Cost: 2 layers x 2 heads train 37 thousand tokens a second on one core. 8M tokens of nine members
take half an hour for each seed, an hour if they do not converge.
"""

from studies.capability.recipe import SHORT, heads
from studies.capability.results import gain, l50
from studies.card import Card, Claim, Member

TWO_BY_TWO = ("model.num_layers=2", *heads(2))


def member(base: str, aligned: bool, shifted: bool) -> Member:
    """Return a member with two layers of two heads."""
    tricks = ["aligned"] * aligned + ["shifted"] * shifted
    return Member(
        name=f"base={base},{'+'.join(tricks) or 'none'}",
        overrides=(
            *TWO_BY_TWO,
            f"model.rotary.base={base}",
            f"model.align_query_key={str(aligned).lower()}",
            f"model.shift_keys={str(shifted).lower()}",
        ),
    )


cards = [
    Card(
        name="C6",
        question="Do aligned projections or key smearing decide the effective context?",
        config=SHORT,
        members=(
            *(
                member(base, aligned, shifted)
                for base in ("10", "1e4")
                for aligned in (True, False)
                for shifted in (True, False)
            ),
            Member(name="1x1,base=10,shifted", overrides=("model.align_query_key=false",)),
        ),
        tokens=8_000_000,
        claims=(
            Claim(
                text="L50 of one head of base 10 is below 29 tokens without alignment too.",
                measure=l50("1x1,base=10,shifted"),
                at_most=29,
            ),
            Claim(
                text="Without alignment, the mean accuracy of two layers of two heads of base 10 "
                "falls by at most 0.02.",
                measure=gain("base=10,aligned+shifted", "base=10,shifted"),
                at_least=-0.02,
            ),
        ),
        refuted_if="one head that does not start aligned has an L50 above 29 tokens",
    )
]
