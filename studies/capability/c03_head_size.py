"""C3: does a larger head have a longer effective context if its slowest pair stays the same?

Heads have 16 to 128 features. Their bases give all of them the slowest pair of base 10 in a head of
64 features.

Cost: 4M tokens take one to two minutes of one core for each member and seed.
"""

from studies.capability.recipe import SHORT
from studies.capability.results import rise
from studies.card import Card, Claim, Member


def member(head_dim: int) -> Member:
    """Return a member with one head of `head_dim` features."""
    base = 10 ** (62 / 64 * head_dim / (head_dim - 2))
    overrides = f"model.head_dim={head_dim}", f"model.rotary.base={base:.6g}"
    return Member(name=f"head_dim={head_dim}", overrides=overrides)


cards = [
    Card(
        name="C3",
        question="Does L50 grow with the pairs of a head if its slowest pair stays the same?",
        config=SHORT,
        members=tuple(map(member, (16, 32, 64, 128))),
        tokens=4_000_000,
        claims=(
            Claim(
                text="From 16 to 128 features L50 rises by at least half of the 1.30 octaves that "
                "D_H forecasts. By the quarter period it would stay the same.",
                measure=rise("head_dim=16", "head_dim=128"),
                at_least=0.65,
            ),
        ),
        refuted_if="L50 is the same for all",
    )
]
