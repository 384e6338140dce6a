"""How a step grows with width: narrow matrices leave cores waiting for memory."""

from collections.abc import Iterator

from benchmarks.cpu.step import share
from benchmarks.pieces import Setting
from benchmarks.record import Result
from configs import small
from configs.changes import change, heads

HEADS = (1, 2, 4, 8)  # of 64 features


def measure(setting: Setting) -> Iterator[Result]:
    """Of two layers, 64 to 512 wide, as `small` but for the width."""
    (config,) = small.configs
    for number in HEADS:
        wider = change(config, model=dict(heads(number), mlp_dim=128 * number))
        yield share(f"{64 * number} wide", wider, setting.rounds)
