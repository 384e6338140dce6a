"""C13: does a head see farther among near distances if training has no others?

One member trains on distances up to 40 tokens, one on all of them; both are measured at all
distances. Training minimizes the mean loss over its distances, so a head that never meets far ones
need not spend weights on them: L50 is higher, and there is no revival at a period of its pairs. D_H
forecasts the same L50 for both.

Cost: 4M tokens take a minute of one core for each member and seed.
"""

from studies.capability.recipe import SHORT
from studies.capability.results import rise
from studies.card import Card, Claim, Member

NEAR, ALL = "longest=40", "all-distances"

cards = [
    Card(
        name="C13",
        question="Does a head see farther if training has only near distances?",
        config=SHORT,
        members=(
            Member(name=NEAR, overrides=("data.retrieval_tasks=[kv(longest=40)]",)),
            Member(name=ALL),
        ),
        tokens=4_000_000,
        claims=(
            Claim(
                text="L50 is higher with distances up to 40 than with all distances, in octaves.",
                measure=rise(ALL, NEAR),
                at_least=0,
            ),
        ),
        is_blind=True,
        refuted_if="L50 is the same, as D_H forecasts",
    )
]
