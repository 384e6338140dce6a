"""What digests add to saving and restoring: of `base_30m` and `base_125m`, on this machine.

Saving takes them from the state before anything is written, and a run saves about once a minute.
Restoring compares them with what was read, from files that this machine still has in memory: of
disks, restoring would take longer and digests a smaller share of it.
"""

import functools
import statistics
import tempfile
import time

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.timing import alternate, compare, one_member
from configs import find_config
from experiment import checkpoint
from experiment.checkpoint import Checkpoints, DataState
from experiment.digest import digests
from experiment.run import RunDirectory
from model.transformer import count_params

_SECONDS_BETWEEN_SAVES = 60


def _random(numbers: np.random.Generator, array: jax.Array) -> jax.Array:
    """As a trained one: its lower bits cannot be compressed."""
    return jnp.asarray(numbers.standard_normal(array.shape, np.float32), array.dtype)


def main(rounds: int) -> None:
    """Prints CPU time, which other jobs change less, ratios and the share of a minute of a core."""
    for name in ("base_30m", "base_125m"):
        config = find_config(name)
        state, _ = one_member(config)
        # Moments are zero before the first update, and zeros take no time to read.
        filled = jax.tree.map(functools.partial(_random, np.random.default_rng(0)), state)
        arrays = {"params": filled.params, "opt_state": filled.opt_state}
        with tempfile.TemporaryDirectory() as folder:
            run = RunDirectory(folder)
            run.write_config(config, ())
            checkpoints = Checkpoints(run, keep=1)
            data = DataState(fingerprint="")
            checkpoints.save(1, filled.params, filled.opt_state, data, config)
            checkpoints.close()

            def read(run=run, arrays=arrays):
                return checkpoint.restore(run, 1, **arrays)

            def read_and_verify(run=run, read=read):
                restored = read()
                checkpoint.verify(run, 1, restored)
                return restored.arrays

            print(f"{name}: {count_params(config.model)['total'] / 1e6:.0f}M parameters")
            seconds = alternate(
                {
                    "digests": functools.partial(digests, arrays),
                    "restore, verified": read_and_verify,
                    "restore": lambda read=read: read().arrays,
                },
                rounds,
                time.process_time,
            )
        compare(seconds)
        share = statistics.median(seconds["digests"]) / _SECONDS_BETWEEN_SAVES
        print(f"  digests of each save: {share:.2%} of a core's minute")
