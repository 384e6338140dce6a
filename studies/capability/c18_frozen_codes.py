"""C18: does D_H limit recall if the codes of keys cannot be learned?

Embeddings and key projections keep random values (`train.frozen`), so other keys are noise, as
D_H assumes; queries train. Two pairs that do not rotate are then worth little: with them d' is 2 at
every distance, and 31 other keys leave an accuracy of Φ(2)^31 = 0.49, where the same frequencies
with learned codes have 0.85 (C15). At base 10 recall ends within D_H's 26 tokens.

If queries are frozen too, at the start, where they equal keys, all pairs have equal weights, as B_m
assumes. Accuracy is then Φ(√2 B_m / √R)^31 for R pairs: 0.79 at 3 tokens and 0 from 4 tokens on.
This is the case in which B_m describes recall.

The minimal head forecasts after 1M tokens L50 and mean accuracy:

    base=10,keys-frozen        17 (.30)
    two-still,keys-frozen     4.8 (.56)
    base=10,all-frozen        3.2 (.07)

Cost: 50 seconds of one busy core for each member and seed.
"""

from configs.changes import change
from studies.capability.c15_disagreements import with_slow
from studies.capability.recipe import SHORT
from studies.capability.results import l50, mean_accuracy
from studies.card import Card, Claim, Member

# The norm's scale is part of a code.
KEYS = "embedding", "attention_norm", "attention.key"
TWO_STILL, BASE = with_slow(0, 0), "model.rotary.base=10"


def frozen(*names: str) -> str:
    """Return an override that freezes parameters."""
    return f"train.frozen=[{','.join(names)}]"


cards = [
    Card(
        name="C18",
        question="Does D_H limit recall if the codes of keys cannot be learned?",
        config=change(SHORT, model=dict(vocab_size=1024), data=dict(vocab_size=1024)),
        members=(
            Member(name="two-still,keys-frozen", overrides=(TWO_STILL, frozen(*KEYS))),
            Member(name="base=10,keys-frozen", overrides=(BASE, frozen(*KEYS))),
            Member(name="base=10,all-frozen", overrides=(BASE, frozen(*KEYS, "attention.query"))),
        ),
        tokens=1_000_000,
        shares=(1 / 4, 1),
        claims=(
            Claim(
                text="With two still pairs and frozen keys, mean accuracy is below 0.7; it is 0.85 "
                "if keys learn (C15).",
                measure=mean_accuracy("two-still,keys-frozen"),
                at_most=0.7,
            ),
            Claim(
                text="At base 10 and with frozen keys, L50 is at most D_H's 26 tokens.",
                measure=l50("base=10,keys-frozen"),
                at_most=26,
            ),
            Claim(
                text="With frozen queries too, L50 is at most 5, the first distance with B_m < 0.",
                measure=l50("base=10,all-frozen"),
                at_most=5,
            ),
        ),
        is_blind=True,
        refuted_if="a member with frozen keys recalls as far as with learned ones",
    )
]
