r"""OlmPool (Bertsch et al., April 2026, OpenReview MRXATMdzeC): small choices that add up.

Question: do normalized queries and keys, grouped keys, a window on half of the layers, and a short
pretraining length each cost little retrieval after the context is extended, and three of them much?

Commands: every combination of the first three, pretrained and then extended to four times the
length; and all of these again from half the pretraining length, at as many tokens.

    ropewalk sweep olmpool_cpu --workdir runs/olmpool_cpu/length
    ropewalk sweep olmpool_cpu --workdir runs/olmpool_cpu/half \
        data.context_length=64 data.batch_size=32
    ropewalk evaluate runs/olmpool_cpu/length
    ropewalk evaluate runs/olmpool_cpu/half
    ropewalk report runs/olmpool_cpu/length runs/olmpool_cpu/half

(gpu: data.context_length=512 data.batch_size=128; paper: 4096 and 512.)

Confirms: at the extended length each choice alone changes the mean accuracy by less than .1,
and members with three choices (the half length counts) lie below the sum of what their choices cost
alone, by more than the intervals; the loss at the pretraining length does not tell them apart.

Refuted if: what three choices cost together is within the interval of that sum, or one choice alone
costs as much as three.

Measured by: kv and perplexity (cpu, gpu); lines and pg19 (paper).

Published: 26 models of 7B, 140B tokens each, extended to 64k tokens by one recipe. Each choice
alone is minor, three or more cost up to 47%: HELMET at 32k is between 29.9 and 56.4. Neither loss
nor 16 short benchmarks show it. (The paper's normalization and windows differ in detail.)
"""

import itertools

from ropewalk.configs.papers import scales
from ropewalk.configs.scaling import scale_7b


def members(keys: tuple[int, int], window: int) -> tuple[tuple[str, ...], ...]:
    """Return all combinations of the choices, with `keys` key heads without and with groups."""
    choices = itertools.product(
        ("model.qk_norm=false", "model.qk_norm=true"),
        (f"model.num_kv_heads={keys[0]}", f"model.num_kv_heads={keys[1]}"),
        ("model.window=none", f"model.window=[{window},none]"),
    )
    return tuple(choices)


configs = scales.at_each_scale(
    "olmpool",
    "Do small choices of architecture compound when the context is extended?",
    cpu=dict(
        data=dict(context_length=128, batch_size=16),
        train=dict(num_steps=400),
        stages=(scales.CPU_LONGER,),
        evals=dict(lengths=(128, 512)),
        members=members((2, 1), 64),
    ),
    gpu=dict(
        stages=(scales.GPU_LONGER,),
        evals=dict(tasks=("kv", "lines", "perplexity"), lengths=(1024, 4096)),
        members=members((6, 2), 256),
    ),
    paper=dict(
        config=scale_7b,
        data=dict(context_length=8192, batch_size=512),
        train=dict(num_steps=33_400),
        stages=(
            (
                *scales.extent(context_length=65_536, batch_size=64, num_steps=2400),
                "model.rotary.base=5e5",
            ),
        ),
        evals=dict(lengths=(8192, 32_768)),
        members=members((32, 8), 4096),
    ),
)
