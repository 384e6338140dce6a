"""Training step by width: narrow matrices leave cores waiting for memory."""

from collections.abc import Iterator

from benchmarks import step
from benchmarks.record import Result
from benchmarks.shapes import Fitting, Shape, cut
from benchmarks.suite import Setting
from configs import small
from configs.changes import change, heads

HEADS = (1, 2, 4, 8)  # of 64 features


def measure(setting: Setting) -> Iterator[Result | str]:
    """Yield the results of `small` with 64 to 512 features."""
    (config,) = small.configs
    for num_heads in HEADS:
        wider = change(config, model=dict(heads(num_heads), mlp_dim=128 * num_heads))
        shape = Shape(cut(wider, setting.scale), (Fitting(config.data.batch_size, "none"),))
        yield from step.measure_shape(f"{64 * num_heads} wide", shape, setting)
