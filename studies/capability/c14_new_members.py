"""C14: does the minimal head forecast members that no theory of this study has seen?

Head sizes 48 and 96 with the slowest pair of C3, three heads, and two frequency vectors: p-RoPE of
base 10, whose two slowest pairs do not turn, and 32 random frequencies. The forecasts in
`recall.json` are older than any row.

Cost: 4M tokens take one to three minutes of one core for each member and seed.
"""

import numpy as np

from studies.capability import c03_head_size
from studies.capability.recipe import SHORT, heads
from studies.card import Card, Member

# Radians per token, log-uniform from 1, RoPE's fastest, to half the slowest of base 10.
_RANDOM = np.exp(np.random.Generator(np.random.Philox(32)).uniform(np.log(0.05), 0, size=32))
RANDOM = ",".join(map(str, np.sort(_RANDOM)[::-1].round(6).tolist()))

cards = [
    Card(
        name="C14",
        question="Does the minimal head forecast members that no theory has seen?",
        config=SHORT,
        members=(
            *map(c03_head_size.member, (48, 96)),
            Member(name="three-heads", overrides=heads(3)),
            Member(name="p-rope", overrides=("model.rotary=p_rope(base=10,rotary_fraction=0.95)",)),
            Member(name="random", overrides=(f"model.rotary=explicit(values=({RANDOM}))",)),
        ),
        tokens=4_000_000,
        is_blind=True,
        refuted_if="the minimal head's L50 is wrong by more than 0.3 octaves rms, or its accuracy "
        "by more than 0.15",
    )
]
