r"""Section 5.3 and Figure 14 of Men et al. 2024 (arXiv 2405.14591): two sizes, the same bases.

Question: do a large and a small model need the same base to retrieve over their context?

Commands: both sizes with each base; members of a size train together, one size after the other.

    ropewalk sweep model_size_cpu --workdir runs/model_size_cpu
    ropewalk evaluate runs/model_size_cpu
    ropewalk report runs/model_size_cpu

(paper: import Baichuan 2 7B as runs/baichuan2_7b, and train `paper_2b` as runs/paper_2b with its
tokenizer, `data.tokenizer=runs/baichuan2_7b/tokenizer.model`. The output layers, which Baichuan 2
scales to rows of length 1, stay frozen.)

Confirms: with each base, the effective context of both sizes lies within the intervals of the
other, or both retrieve over the whole length; the smallest base that does is the same (the bound is
1412 for 256 tokens and heads of 64, 7753 for 1024).

Refuted if: with some base one size retrieves over the whole length and the other falls within it,
each significantly. More heads and layers can reach past a base that bounds one head.

Measured by: kv (cpu, gpu); lines and needle (paper).

Published: a 7B, fine-tuned at 32768 tokens with base 1e4, has an effective context nearly identical
to that of the 2B with this base (Figure 14's 7B is Qwen 1.5; Figures 12, 13 show Baichuan 2).
"""

from ropewalk.configs.changes import heads
from ropewalk.configs.papers import scales

Overrides = tuple[str, ...]


def sizes(large: dict[str, int], bases: tuple[str, ...], *more: str) -> tuple[Overrides, ...]:
    """Return members of the config's size and of another one, `more` for the latter, per base."""
    other = tuple(f"model.{name}={value}" for name, value in large.items())
    both: tuple[Overrides, ...] = ((), (*more, *other))
    return tuple((f"model.rotary.base={base}", *size) for size in both for base in bases)


configs = scales.at_each_scale(
    "model_size",
    "Do a large and a small model need the same base?",
    cpu=dict(
        members=sizes(dict(heads(4), num_layers=4, mlp_dim=512), ("30", "300", "3000")),
    ),
    gpu=dict(
        members=sizes(dict(heads(12), num_layers=12, mlp_dim=2048), ("100", "1e3", "1e4")),
    ),
    paper=dict(
        config=scales.LLAMA2_7B,
        start_from="runs/baichuan2_7b",
        model=dict(vocab_size=125_696),
        data=dict(tokenizer="runs/baichuan2_7b/tokenizer.model"),
        train=dict(frozen=("output",)),
        members=sizes(
            dict(heads(16, 128), mlp_dim=5504),
            ("1e4", "2e5", "6.4e5", "5e6"),
            "start_from=runs/paper_2b",
        ),
    ),
)
