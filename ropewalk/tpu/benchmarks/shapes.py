"""Sizes of the models that are benchmarked, derived from the configs."""

from ropewalk.configs import base_30m, base_125m, demo, paper_2b
from ropewalk.configs.changes import change, heads
from ropewalk.experiment.config import ExperimentConfig
from ropewalk.experiment.cost import flops_per_token


def train_shapes(device: str, dry: bool = False) -> dict[str, ExperimentConfig]:
    """Return the models of single runs, by name, all rows in one microbatch; tiny ones if `dry`.

    On a CPU: the demo's largest members, and 10M and 30M parameters on short rows.
    On a GPU: what one chip of 80 GB trains.
    """
    if device == "cpu":
        shapes = _cpu_configs()
    else:
        (base,), (paper,) = base_125m.configs, paper_2b.configs
        billion = change(
            paper,
            name="1B",
            # The sizes of Llama 3.2 1B except for its vocabulary and its heads of 64 features.
            model=dict(vocab_size=32_000, num_layers=16, num_kv_heads=8, mlp_dim=8192),
            data=dict(vocab_size=32_000),
        )
        longer = change(paper, data=dict(context_length=32_768))
        shapes = {
            "base_125m": fitted(change(base, model=dict(unroll=True)), 16, "none"),
            "1B": fitted(billion, 8, "dots"),
            "paper_2b": fitted(paper, 4, "dots"),
            "paper_2b at 32k": fitted(longer, 1, "qkv"),
        }
    return {name: cut(config, dry) for name, config in shapes.items()}


def fitted(config: ExperimentConfig, rows: int, remat: str) -> ExperimentConfig:
    """Return a config with the number of rows, in one microbatch, and the recomputation."""
    data, train = dict(batch_size=rows), dict(accumulate=1)
    return change(config, model=dict(remat=remat), data=data, train=train)


def sweep_shapes(device: str, dry: bool = False) -> dict[str, ExperimentConfig]:
    """Return the models of sweeps, by name; tiny ones if `dry`."""
    if device == "cpu":
        shapes = {name: _cpu_configs()[name] for name in ("demo", "10M")}
    else:
        (smallest,), (larger,) = demo.configs, base_30m.configs
        thirty = change(larger, data=dict(batch_size=8))
        ten = change(
            thirty, model=dict(heads(5), num_layers=6, mlp_dim=896), data=dict(context_length=1024)
        )
        shapes = {"10M": ten, "demo": smallest, "30M": thirty}
    return {name: cut(config, dry) for name, config in shapes.items()}


def _cpu_configs() -> dict[str, ExperimentConfig]:
    (smallest,), (larger,) = demo.configs, base_30m.configs
    short = dict(context_length=512, batch_size=2)
    sizes = dict(vocab_size=8192, num_layers=6, mlp_dim=896)
    plain = dict(shift_keys=False, align_query_key=False)
    ten = change(
        smallest, model=dict(heads(5), **sizes, **plain), data=dict(vocab_size=8192, **short)
    )
    thirty = change(larger, model=dict(compute_dtype="float32", remat="none"), data=short)
    return {"demo": smallest, "10M": ten, "30M": thirty}


def cut(config: ExperimentConfig, dry: bool) -> ExperimentConfig:
    """Return the config or, for a dry run, one with two layers of two heads, and short rows."""
    if not dry:
        return config
    model, data = config.model, config.data
    shared = model.kv_heads != model.num_heads
    sizes = dict(num_layers=2, num_heads=2, num_kv_heads=1 if shared else 2)
    widths = dict(vocab_size=256, head_dim=16, embed_dim=32, mlp_dim=64)
    length = max(32, data.context_length // 100)
    rows = dict(vocab_size=256, context_length=length, batch_size=min(2, data.batch_size))
    return change(config, model=sizes | widths, data=rows, train=dict(accumulate=1))


def flops(config: ExperimentConfig) -> float:
    """Return the model FLOPs of one update, as `train.py` counts them for MFU."""
    return flops_per_token(config) * tokens(config)


def tokens(config: ExperimentConfig) -> int:
    """Return the number of tokens of one update."""
    return config.data.batch_size * config.data.context_length
