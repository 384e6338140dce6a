"""Partial rotation (Su Jianlin, May 2024, on Men et al.): does an unrotated part lift the bound?

Question: if part of each head never rotates, does a small base still bound what is retrieved?

Commands: one base that rotates all, half and a quarter of each head, p-RoPE's half (its slow pairs
unrotated), and two controls.

    python sweep.py partial_rotation_cpu --workdir runs/partial_rotation_cpu
    python evaluate.py runs/partial_rotation_cpu
    python report.py runs/partial_rotation_cpu

Cost: cpu 1.7e13 FLOP, about 3 minutes; gpu 5.2e16 FLOP, about 9 minutes; paper 2.6e22 FLOP, about
752 days of one H100.

Confirms: effective context (kv) at base 10 ends near 15 tokens with all of the head rotated and not
at all within the trained length with half or a quarter of it, as for base 10000 and no rotation.
"""

from configs.changes import change, each
from studies.papers import scales


def members(small: str, large: str) -> tuple[tuple[str, ...], ...]:
    """A small base rotating all or part of each head; a large base and no rotation."""
    return each(
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


cards = scales.at_each_scale(
    "partial_rotation",
    "Does an unrotated part of each head lift the bound of a small base?",
    source="Nothing measured; an argument. With half of a head unrotated, sum_i cos(m "
    'inv_freq_i) >= 0 holds at every distance and base, so that "there would be no '
    'need to modify b" for long text (Su). GPT-NeoX rotates a quarter of each head '
    "since EleutherAI found part slightly better than all.",
    refuted_if="An edge of the partial members near a period of the pairs that do rotate.",
    cpu=change(scales.CPU, members=members("10", "1e4")),
    gpu=change(scales.GPU, members=members("30", "1e5")),
    # A year of an H100 each: what the paper has shown (base 100), and its half.
    paper=change(scales.PAPER_2B, members=members("100", "1e4")[:2]),
)
