"""C16: do designed frequencies recall farther than the best single base?

A search over the quantiles of log frequency found the vector below, which has the highest mean
accuracy that the minimal head forecasts for one head of 64 features at 128 tokens, if each pair
makes at least one cycle. The search is gone, since nothing was gained (docs/results.md), and the
vector is data. It and the best single base under the same constraint, 22.45, are members. Two
members break it for comparison: p-RoPE, and one slow head beside a fast one. Recall alone needs no
rotation, so these are expected to win. The forecasts in `recall.json` are older than any row.

Cost: 1M tokens take 35 to 50 seconds of one core for each member and seed.
"""

from studies.capability.recipe import SHORT, heads
from studies.capability.results import gain
from studies.card import Card, Claim, Member

# Quantiles of the search's log frequencies, from the fastest pair to the slowest.
DESIGN = (
    *(0.88451, 0.81874, 0.75786, 0.70151, 0.64935, 0.60106, 0.55637, 0.515, 0.4767, 0.44126),
    *(0.40845, 0.3571, 0.30343, 0.25782, 0.21907, 0.18614, 0.15816, 0.13439, 0.11419, 0.097027),
    *(0.082444, 0.073627, 0.072638, 0.071661, 0.070697, 0.069747, 0.068809, 0.067884, 0.066972),
    *(0.066071, 0.065183, 0.064306),
)
DESIGNED = f"model.rotary=explicit(values=({','.join(map(str, DESIGN))}))"
BASE = "model.rotary.base=22.45"

cards = [
    Card(
        name="C16",
        question="Do designed frequencies recall farther than the best single base?",
        config=SHORT,
        members=(
            Member(name="design", overrides=(DESIGNED,)),
            Member(name="base=22.45", overrides=(BASE,)),
            Member(
                name="p-rope", overrides=("model.rotary=p_rope(base=22.45,rotary_fraction=0.95)",)
            ),
            Member(name="2-heads,design", overrides=(*heads(2), DESIGNED)),
            Member(
                name="2-heads,one-slow",
                overrides=(*heads(2), "model.rotary=[[rope(base=22.45),rope(base=1e4)]]"),
            ),
        ),
        tokens=1_000_000,
        shares=(1 / 4, 1),
        claims=(
            Claim(
                text="Mean accuracy of the design is higher than that of the single base by 0.05.",
                measure=gain("base=22.45", "design"),
                at_least=0.05,
            ),
        ),
        refuted_if="mean accuracy of the design is not higher than that of the single base",
        is_blind=True,
    )
]
