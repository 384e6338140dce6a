"""Time that digests add to saving and restoring `base_30m` and `base_125m`.

Saving computes them before anything is written, about once a minute. Restoring compares them with
the restored arrays; the files are still in this machine's memory. From a disk, restoring takes
longer and digests take a smaller share of it.
"""

import functools
import statistics
import tempfile
import time
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.record import Result
from benchmarks.shapes import cut
from benchmarks.suite import Setting
from benchmarks.timing import alternate, init_member
from configs import base_30m, base_125m
from experiment import checkpoint
from experiment.checkpoint import Checkpoints, DataState
from experiment.config import ExperimentConfig
from experiment.digest import digests
from experiment.run import RunDirectory
from model.transformer import count_params

SECONDS_BETWEEN_SAVES = 60


def measure(setting: Setting) -> Iterator[Result]:
    """Yield ratios of CPU time, which other jobs change less than elapsed time."""
    for module in (base_30m, base_125m):
        config = cut(module.configs[0], setting.scale)
        seconds = _time(config, setting.rounds)
        name = f"{config.name}, {count_params(config.model)['total'] / 1e6:.0f}M parameters"
        yield Result.from_seconds(
            name, "restoring with digests compared over without", seconds, at_most=1.1
        )
        yield Result(
            name=name,
            ratio="digests of a save over a minute of one core",
            least=min(seconds["digests"]) / SECONDS_BETWEEN_SAVES,
            median=statistics.median(seconds["digests"]) / SECONDS_BETWEEN_SAVES,
            at_most=0.01,
        )


def _time(config: ExperimentConfig, rounds: int) -> dict[str, list[float]]:
    random = np.random.default_rng(0)

    def fill(array: jax.Array) -> jax.Array:
        # Zeros, such as moments before the first update, would compress to nothing.
        return jnp.asarray(random.standard_normal(array.shape, np.float32), array.dtype)

    state = jax.tree.map(fill, init_member(config)[0])
    arrays = {"params": state.params, "opt_state": state.opt_state}
    with tempfile.TemporaryDirectory() as folder:
        run = RunDirectory(folder)
        run.write_config(config, ())
        checkpoints = Checkpoints(run, keep=1)
        checkpoints.save(1, state.params, state.opt_state, DataState(fingerprint=""), config)
        checkpoints.close()

        def restore_and_verify():
            restored = checkpoint.restore(run, 1, **arrays)
            checkpoint.verify(run, 1, restored)
            return restored.arrays

        functions = {
            "verified": restore_and_verify,
            "restored": lambda: checkpoint.restore(run, 1, **arrays).arrays,
            "digests": functools.partial(digests, arrays),
        }
        return alternate(functions, rounds, time.process_time)
