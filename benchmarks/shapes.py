"""The sizes that are measured, made from the configs without their data."""

import math
from typing import Literal, NamedTuple

from configs import base_30m, base_125m, demo, paper_2b
from configs.changes import change, heads
from experiment.config import ExperimentConfig
from experiment.metrics import flops_per_token


def on_cpu() -> dict[str, ExperimentConfig]:
    """What a CPU trains: the demo's largest members, and 10M and 30M parameters on short rows."""
    (smallest,), (larger,) = demo.configs, base_30m.configs
    short = dict(context_length=512, batch_size=2)
    plain = dict(compute_dtype="float32", remat="none")
    ten = change(
        smallest,
        model=dict(
            heads(5),
            vocab_size=8192,
            num_layers=6,
            mlp_dim=896,
            shift_keys=False,
            align_query_key=False,
        ),
        data=dict(vocab_size=8192, **short),
    )
    return {"demo": smallest, "10M": ten, "30M": change(larger, model=plain, data=short)}


class Fitting(NamedTuple):
    """What is changed to make a step fit a chip's memory, or its matrix units.

    Attributes:
      rows: of a batch.
      remat: what the backward pass recomputes.
    """

    rows: int
    remat: Literal["none", "dots", "full"]


class Shape(NamedTuple):
    """A size that is measured on an accelerator.

    Attributes:
      config: the model and its rows' length.
      tried: in this order, as far as there is time; the fastest counts.
      mfu: the least share of the chip's peak that is aimed at; None where nothing was promised.
    """

    config: ExperimentConfig
    tried: tuple[Fitting, ...]
    mfu: float | None = None


def on_gpu(scale: float = 1.0) -> dict[str, Shape]:
    """What a chip of 80 GB trains alone, one document a row; `scale` as for `cut`."""
    (small_one,), (large,) = base_125m.configs, paper_2b.configs
    billion = change(
        large,
        name="1B",
        # The sizes of Llama 3.2 1B but for its vocabulary and heads of 64.
        model=dict(vocab_size=32_000, num_layers=16, num_kv_heads=8, mlp_dim=8192),
        data=dict(vocab_size=32_000),
    )
    longer = change(large, data=dict(context_length=32_768))
    shapes = {
        "base_125m": Shape(small_one, (Fitting(16, "none"), Fitting(32, "dots"))),
        "1B": Shape(billion, (Fitting(8, "dots"), Fitting(4, "none"))),
        "paper_2b": Shape(large, (Fitting(4, "dots"), Fitting(8, "full"), Fitting(2, "dots")), 0.6),
        "paper_2b at 32k": Shape(longer, (Fitting(1, "full"),), 0.5),
    }
    return {name: shape._replace(config=cut(shape.config, scale)) for name, shape in shapes.items()}


def sweeps_on_gpu(scale: float = 1.0) -> dict[str, ExperimentConfig]:
    """What sweeps are made of there."""
    (smallest,), (larger,) = demo.configs, base_30m.configs
    thirty = change(larger, data=dict(batch_size=8))
    ten = change(
        thirty,
        model=dict(heads(5), num_layers=6, mlp_dim=896),
        data=dict(context_length=1024),
    )
    shapes = {"10M": ten, "demo": smallest, "30M": thirty}
    return {name: cut(config, scale) for name, config in shapes.items()}


def cut(config: ExperimentConfig, scale: float) -> ExperimentConfig:
    """For a dry run: rows, layers and vocabulary times `scale`, widths times its square root."""
    if scale == 1:
        return config
    model = config.model
    narrower = max(1, round(1 / math.sqrt(scale)))
    num_heads = max(2, model.num_heads // narrower)
    head_dim = max(16, model.head_dim // narrower // 8 * 8)
    sizes = dict(
        vocab_size=max(256, int(model.vocab_size * scale)),
        num_layers=max(2, int(model.num_layers * scale)),
        num_heads=num_heads,
        num_kv_heads=num_heads if model.kv_heads == model.num_heads else 1,
        head_dim=head_dim,
        embed_dim=num_heads * head_dim,
        mlp_dim=max(64, model.mlp_dim // narrower // 8 * 8),
    )
    data = dict(
        vocab_size=256,
        context_length=max(32, int(config.data.context_length * scale)),
        batch_size=min(2, config.data.batch_size),
    )
    return change(config, model=sizes, data=data, train=dict(accumulate=1))


def flops(config: ExperimentConfig) -> float:
    """Model FLOPs of an update, as `train.py` counts them for MFU."""
    return flops_per_token(config) * tokens(config)


def tokens(config: ExperimentConfig) -> int:
    """Of an update."""
    return config.data.batch_size * config.data.context_length
