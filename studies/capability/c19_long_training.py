"""C19: does one head stop at D_H if training goes on for ten million answers?

L50 of one head still grows after 1.5 million answers (C1, C5, C11), so no earlier card shows where
it ends. D_H, as a limit, says 26 tokens at base 10 and 68 at base 30. The minimal head learns codes
for its keys and has no such limit. It forecasts L50 and mean accuracy:

    base=10   16M tokens: 25.2 (.57)   64M tokens: 26.7 (.60)
    base=30   16M tokens: 77.7 (.65)   64M tokens: 95.9 (.77)

Budgets are four times as long as the one before, so a run ends early only if four times the
answers change L50 by less than 0.1 octaves and mean accuracy by less than 0.02.

Cost: 64M tokens take 12 minutes of one core for each member and seed.
"""

from studies.capability.recipe import SHORT
from studies.capability.results import l50
from studies.card import Card, Claim, Member

BOUNDS = {10: 26, 30: 68}

cards = [
    Card(
        name="C19",
        question="Does one head stop at D_H if training goes on for ten million answers?",
        config=SHORT,
        members=tuple(
            Member(name=f"base={base}", overrides=(f"model.rotary.base={base}",)) for base in BOUNDS
        ),
        tokens=64_000_000,
        shares=(1 / 16, 1 / 4, 1),
        claims=tuple(
            Claim(
                text=f"At base {base}, L50 passes D_H's {bound} tokens.",
                measure=l50(f"base={base}"),
                at_least=bound,
            )
            for base, bound in BOUNDS.items()
        ),
        is_blind=True,
        refuted_if="L50 stays below D_H at both bases",
    )
]
