"""C7: latent attention (MLA), of whose head a third rotates: does a small base bound it?

Two thirds of a head are unrotated, 32 pairs of 48, so theory knows no limit at any base. Without
the tricks a model of this size learns to retrieve late or not at all: then it says nothing.

Cost: 3M tokens are a minute and a half of one core for each member and seed.
"""

from configs.changes import change
from model.config import MlaConfig
from studies.capability.recipe import SHORT, octaves, when_run
from studies.card import Card, Claim, Member


def name(base: str, tricks: str) -> str:
    """Of a member."""
    return f"base={base},{tricks}"


def member(base: str, tricks: str) -> Member:
    """One layer, one head; tricks are "aligned", "shifted", both or none."""
    return Member(
        name=name(base, tricks),
        overrides=(
            f"model.rotary.base={base}",
            f"model.align_query_key={str('aligned' in tricks).lower()}",
            f"model.shift_keys={str('shifted' in tricks).lower()}",
        ),
    )


cards = [
    Card(
        name="C7",
        question="Does a small base bound latent attention, of which a third rotates?",
        shared=change(
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
                text="With both tricks L50 is the same at base 10 as at 1e4, to half an octave.",
                refuted=when_run(
                    (name("10", "aligned+shifted"), name("1e4", "aligned+shifted")),
                    lambda small, large: octaves(large) - octaves(small) > 0.5,
                ),
            ),
        ),
        refuted_if="with both tricks there is an edge at base 10 only",
    )
]
