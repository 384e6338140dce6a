"""C15: which theory forecasts the members on which the theories disagree most?

On members with a plain edge, D_H with one fitted constant is as good as the minimal head. These ten
members were chosen from 33 candidates because the forecasts differ most, over frequency vectors,
head sizes, heads, key ids and training distances; no candidate was trained before. The constants of
the rivals are those of the members of C1 to C14 at as many tokens: 0.59 D_H, 1.16 quarter periods
and 3.0 times B_m's length. The forecasts in `recall.json` are older than any row. After 1M tokens,
L50 in tokens and mean accuracy:

    member                  minimal head (mean)   0.59 D_H   1.16 quarter periods   3.0 B_m
    two-still                       > 125 (.97)          7                      4         9
    one-still                  26, dips   (.67)          4                      4         9
    two-slow                   80, dips   (.56)          7                    116         9
    one-frequency              9, revives (.44)          5                      6        18
    two-still,keys=512              > 125 (.92)         35                     15        15
    head_dim=32,keys=512               12 (.19)         11                     16        15
    2-heads,one-frequency     > 125, dips (.86)         11                      6        18
    8x16                       25, dips   (.51)         68                     14        15
    2x128                     > 125, dips (.82)      > 125                     18        15
    2-heads,longest=40                 37 (.37)         53                     17        15

Cost: 1M tokens take 35 seconds of one core for each member and seed.
"""

import math

import numpy as np

from configs.changes import change
from studies.capability.recipe import SHORT, heads
from studies.card import Card, Member

MANY_KEYS = "data.retrieval_tasks=[kv(keys=512)]", "evals.tasks=[kv(keys=512)]"


def with_slow(*slow: float) -> str:
    """Return an override: 32 pairs, the fast ones from 1 to 0.5 radians per token."""
    values = [*np.linspace(1, 0.5, 32 - len(slow)).round(6).tolist(), *slow]
    return f"model.rotary=explicit(values=({','.join(map(str, values))}))"


ONE_FREQUENCY = f"model.rotary=explicit(values=({','.join(['0.3'] * 32)}))"
TWO_STILL = "model.rotary=p_rope(base=10,rotary_fraction=0.95)"

cards = [
    Card(
        name="C15",
        question="Which theory forecasts the members on which the theories disagree most?",
        config=change(SHORT, model=dict(vocab_size=1024), data=dict(vocab_size=1024)),
        members=(
            Member(name="two-still", overrides=(with_slow(0, 0),)),
            Member(name="one-still", overrides=(with_slow(0),)),
            Member(name="two-slow", overrides=(with_slow(*[round(math.pi / 200, 6)] * 2),)),
            Member(name="one-frequency", overrides=(ONE_FREQUENCY,)),
            Member(name="two-still,keys=512", overrides=(TWO_STILL, *MANY_KEYS)),
            Member(name="head_dim=32,keys=512", overrides=("model.head_dim=32", *MANY_KEYS)),
            Member(name="2-heads,one-frequency", overrides=(*heads(2), ONE_FREQUENCY)),
            Member(name="8x16", overrides=heads(8, 16)),
            Member(name="2x128", overrides=heads(2, 128)),
            Member(
                name="2-heads,longest=40",
                overrides=(*heads(2), "data.retrieval_tasks=[kv(longest=40)]"),
            ),
        ),
        tokens=1_000_000,
        shares=(1 / 4, 1),
        is_blind=True,
        refuted_if="a rival with one constant has a smaller error of L50 or of mean accuracy than "
        "the minimal head, whose errors exceed 0.3 octaves or its curves 0.15",
    )
]
