"""Models and helpers that the papers' experiments share, at three scales.

CPU is `configs/small.py`: two layers that learn to retrieve within a million tokens. GPU has ten
million parameters and the same aids (`shift_keys`, `align_query_key`, half of the rows retrieval).
The papers' own models have no aids. Heads have 64 features (128 in the papers), because the bound
depends on them.

Extended contexts are eight times the pretrained one, as from Llama 2's 4096 tokens to 32768, and
bases shrink with them. Llama 2's slowest pair rotates by 27 degrees within 4096 tokens; that of
base 100 and 64 features rotates by 42 degrees within 64. 32768 tokens at base 500 are 46 quarter
periods of that pair, and 512 tokens at base 10 are 35.
"""

import dataclasses
from collections.abc import Iterable
from typing import Any

from ropewalk.configs.base_30m import configs as base_30m
from ropewalk.configs.changes import change, heads, vary
from ropewalk.configs.paper_2b import PAPER_EVALS
from ropewalk.configs.paper_2b import configs as paper_2b
from ropewalk.configs.scaling import scale_7b
from ropewalk.configs.small import configs as small
from ropewalk.data.config import DataConfig
from ropewalk.experiment.config import ExperimentConfig, TrainConfig

(CPU,) = small
GPU = change(
    *base_30m,
    members=(),
    model=dict(
        heads(6),
        vocab_size=4096,
        num_layers=6,
        mlp_dim=1024,
        shift_keys=True,
        align_query_key=True,
        remat="none",
    ),
    data=dict(vocab_size=4096, context_length=1024, batch_size=64, retrieval_fraction=0.5),
    train=TrainConfig(
        num_steps=1500, learning_rate=2e-3, warmup_steps=50, beta2=0.98, save_every=200
    ),
    evals=dict(tasks=("kv", "lines", "needle", "perplexity")),
)
(PAPER_2B,) = paper_2b

# Llama 2 7B as Men et al. fine-tune it (Section 5.1 and Table 5, whose "2e5" must be 2e-5).
# `figure6_llama2_7b` imports the parameters of `runs/llama2_7b`.
LLAMA2_7B = change(
    scale_7b,
    start_from="runs/llama2_7b",
    data=DataConfig(
        source="redpajama",
        tokenizer="runs/llama2_7b/tokenizer.model",
        context_length=32_768,
        batch_size=128,
        num_workers=8,
    ),
    train=TrainConfig(num_steps=1000, learning_rate=2e-5, schedule="constant", weight_decay=0.0),
    evals=dataclasses.replace(PAPER_EVALS, lengths=(4096, 8192, 16_384, 32_768)),
)

# Parents that are continued at a longer context.
CPU_SHORT = change(
    CPU,
    model=dict(rotary=dict(base=100.0)),
    data=dict(context_length=64, batch_size=32),
    train=dict(num_steps=400),
)
GPU_SHORT = change(
    GPU, model=dict(rotary=dict(base=500.0)), data=dict(context_length=512, batch_size=128)
)


def extent(*, context_length: int, batch_size: int, num_steps: int) -> tuple[str, ...]:
    """Return overrides for the data of a stage."""
    return (
        f"data.context_length={context_length}",
        f"data.batch_size={batch_size}",
        f"train.num_steps={num_steps}",
    )


# Overrides of a run or stage that continues another one: at the same length, and at eight times it.
CONTINUED = ("train.schedule=constant", "train.warmup_steps=10", "train.weight_decay=0")
CPU_CONTINUED = ("train.learning_rate=1e-3", *CONTINUED)
GPU_CONTINUED = ("train.learning_rate=5e-4", *CONTINUED)
CPU_LONGER = (
    "data.context_length=512",
    "data.batch_size=4",
    "data.retrieval_fraction=0.75",
    "train.num_steps=400",
    *CPU_CONTINUED,
)
GPU_LONGER = (*extent(context_length=4096, batch_size=16, num_steps=400), *GPU_CONTINUED)


def at_each_scale(name: str, question: str, **scales: dict[str, Any]) -> list[ExperimentConfig]:
    """Return the configs `NAME_SCALE` of an experiment, given what each scale changes.

    A scale changes CPU, GPU or PAPER_2B, unless it names another `config`.
    """
    bases = {"cpu": CPU, "gpu": GPU, "paper": PAPER_2B}
    return [
        change(**{"config": bases[scale], **changes}, name=f"{name}_{scale}", question=question)
        for scale, changes in scales.items()
    ]


def members_from_parent(
    name: str, field: str, values: Iterable[object], *changes: str
) -> tuple[tuple[str, ...], ...]:
    """Return members that continue the run `parent` of a config with each value of a field."""
    return vary(field, values, f"start_from=runs/{name}/parent", *changes)


def continued(
    name: str, question: str, field: str, **scales: tuple[tuple[str, ...], dict[str, Any]]
) -> list[ExperimentConfig]:
    """Return configs that continue a parent at eight times its length, for values of one field.

    The experiment trains the parent itself, but at the paper's scale.

    Args:
      name, question: of the experiment.
      field: dotted path.
      **scales: the values of the field, and the changes of `evals`.
    """
    parents = {"cpu": (CPU_SHORT, CPU_LONGER), "gpu": (GPU_SHORT, GPU_LONGER)}
    configs = {}
    for scale, (values, evals) in scales.items():
        config, members = LLAMA2_7B, vary(field, values)
        if scale in parents:
            config, longer = parents[scale]
            members = members_from_parent(f"{name}_{scale}", field, values, *longer)
        configs[scale] = dict(config=config, evals=evals, members=members)
    return at_each_scale(name, question, **configs)
