"""C4: does the effective context of one head fall with the number of keys?

Documents have 4, 16 and 32 pairs and ask for four of them, so the number of answers is equal.

Cost: 4M tokens take a minute of one core for each member and seed.
"""

from configs.changes import change
from studies.capability.recipe import SHORT
from studies.capability.results import rise
from studies.card import Card, Claim, Member


def member(base: int, pairs: int) -> Member:
    """Return a member with a base, and documents of `pairs` pairs."""
    task = f"[kv(pairs={pairs},answers=4)]"
    overrides = f"model.rotary.base={base}", f"data.retrieval_tasks={task}", f"evals.tasks={task}"
    return Member(name=f"base={base},pairs={pairs}", overrides=overrides)


cards = [
    Card(
        name="C4",
        question="Does the effective context of one head fall with the number of keys?",
        # Other cards have as many answers in a quarter of these documents.
        config=change(SHORT, evals=dict(documents=1024)),
        members=tuple(member(base, pairs) for base in (10, 30) for pairs in (4, 16, 32)),
        tokens=4_000_000,
        claims=tuple(
            Claim(
                text=f"At base {base}, L50 falls from 4 to 32 pairs by at least half of the "
                f"{octaves} octaves that D_H forecasts.",
                measure=rise(f"base={base},pairs=4", f"base={base},pairs=32"),
                at_most=-octaves / 2,
            )
            for base, octaves in ((10, 0.73), (30, 0.81))
        ),
        refuted_if="L50 is the same for all numbers of pairs",
    )
]
