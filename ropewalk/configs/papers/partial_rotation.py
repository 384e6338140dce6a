"""Partial rotation (Su Jianlin, May 2024, on Men et al.): does an unrotated part lift the bound?

Question: if part of each head never rotates, does a small base still bound what is retrieved?

Commands: one base that rotates all, half or a quarter of each head; p-RoPE's half (its slow pairs
unrotated); and two controls.

    ropewalk sweep partial_rotation_cpu --workdir runs/partial_rotation_cpu
    ropewalk evaluate runs/partial_rotation_cpu
    ropewalk report runs/partial_rotation_cpu

Confirms: at base 10, effective context ends near 15 tokens if the whole head rotates, and
covers the trained length if half or a quarter of it rotates, as with base 10000 and without
rotation.

Refuted if: the partial members have an edge near a period of their rotated pairs.

Measured by: kv (cpu, gpu); lines and needle (paper).

Published: no measurement but an argument. With half of a head unrotated, sum_i cos(m inv_freq_i) >=
0 holds at every distance and base, so that "there would be no need to modify b" for long text (Su).
GPT-NeoX rotates a quarter of each head since EleutherAI found a part slightly better than all.
"""

from ropewalk.configs.changes import vary
from ropewalk.configs.papers import scales


def members(small: str, large: str) -> tuple[tuple[str, ...], ...]:
    """Return members with a small base on all or part of each head, a large base, no rotation."""
    return vary(
        "model.rotary",
        (
            f"rope(base={small})",
            f"rope(base={small},rotary_fraction=0.5)",
            f"rope(base={small},rotary_fraction=0.25)",
            f"p_rope(base={small},rotary_fraction=0.5)",
            f"rope(base={large})",
            "nope",
        ),
    )


configs = scales.at_each_scale(
    "partial_rotation",
    "Does an unrotated part of each head lift the bound of a small base?",
    cpu=dict(members=members("10", "1e4")),
    gpu=dict(members=members("30", "1e5")),
    # Two members, a year of an H100 each: the paper's base 100, and the same on half of each head.
    paper=dict(members=members("100", "1e4")[:2]),
)
