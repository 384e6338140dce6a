"""C7: does a small base bound latent attention (MLA), which rotates a third of each head?

Two thirds of a head, 32 pairs of 48, are unrotated, so theory has no limit at any base. Without the
tricks a model of this size learns recall late or never; such a member decides nothing.

Cost: 3M tokens take a minute and a half of one core for each member and seed.
"""

from configs.changes import change
from model.config import MlaConfig
from studies.capability.recipe import SHORT
from studies.capability.results import rise
from studies.card import Card, Claim, Member


def member(base: str, tricks: str) -> Member:
    """Return a member with one layer and one head; `tricks`: "aligned", "shifted", both or none."""
    return Member(
        name=f"base={base},{tricks}",
        overrides=(
            f"model.rotary.base={base}",
            f"model.align_query_key={str('aligned' in tricks).lower()}",
            f"model.shift_keys={str('shifted' in tricks).lower()}",
        ),
    )


cards = [
    Card(
        name="C7",
        question="Does a small base bound latent attention, which rotates a third of each head?",
        config=change(
            SHORT,
            model=dict(
                head_dim=96,
                mla=MlaConfig(
                    kv_lora_rank=64, qk_nope_head_dim=64, qk_rope_head_dim=32, v_head_dim=64
                ),
            ),
        ),
        members=tuple(
            member(base, tricks)
            for base in ("10", "1e4")
            for tricks in ("aligned+shifted", "aligned", "shifted", "none")
        ),
        tokens=3_000_000,
        claims=(
            Claim(
                text="With both tricks, L50 at base 10 is within half an octave of that at 1e4.",
                measure=rise("base=10,aligned+shifted", "base=1e4,aligned+shifted"),
                at_most=0.5,
            ),
        ),
        refuted_if="with both tricks, only base 10 has an edge",
    )
]
