"""The fastest matrix products and memory copies of the machine, one core and all.

`python -m benchmarks.limits CORE` prints the limits of one core as JSON.
"""

import json
import math
import os
import subprocess
import sys
import timeit
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks import machine
from benchmarks.record import Result
from benchmarks.suite import Setting
from utils.threads import num_cpus

NAMES = {"GFLOP/s": "float32 matrix products", "GB/s": "copying, read and written"}
MATMUL_SIZES = (1024, 2048)  # the limit is the fastest of them
COPIED_BYTES = 2**28  # more than any cache holds


def measure(setting: Setting) -> Iterator[Result]:
    """Yield the rate of all cores over the rate of one; each is the fastest of about a second."""
    one_core, all_cores = limits_of_one_core(), limits()
    for unit, name in NAMES.items():
        yield Result.from_ratio(
            name,
            f"{num_cpus()} cores over one",
            all_cores[unit] / one_core[unit],
            measured={f"{unit} of one core": one_core[unit], f"{unit} of all": all_cores[unit]},
        )


def matmul(size: int, dtype: str = "float32") -> Callable[[], Any]:
    """Return a function that multiplies two square matrices by XLA, without waiting for it."""
    import jax

    keys = jax.random.split(jax.random.key(0))
    left, right = (jax.random.normal(key, (size, size), dtype) for key in keys)
    product = jax.jit(lambda left, right: left @ right)
    return lambda: product(left, right)


def limits() -> dict[str, float]:
    """Return GFLOP/s of products, the faster of XLA's and numpy's, and GB/s read and written."""
    import numpy as np

    rates = []
    for size in MATMUL_SIZES:
        left, xla = np.ones((size, size), np.float32), matmul(size)
        for product in (lambda xla=xla: xla().block_until_ready(), lambda left=left: left @ left):
            rates.append(2 * size**3 / _fastest(product))
    cores = num_cpus()
    targets, sources = np.ones((2, cores, COPIED_BYTES // 8 // cores), np.float32)
    with ThreadPoolExecutor(cores) as threads:
        seconds = _fastest(lambda: list(threads.map(np.copyto, targets, sources)))
    num_bytes = targets.nbytes + sources.nbytes
    return {"GFLOP/s": max(rates) / 1e9, "GB/s": num_bytes / seconds / 1e9}


def _fastest(function: Callable[[], Any]) -> float:
    """Return the time of the fastest of at least three calls, a second in all, after a warm-up."""
    function()
    timer = timeit.Timer(function)
    return min(timer.repeat(max(3, math.ceil(1 / timer.timeit(1))), 1))


def limits_of_one_core() -> dict[str, float]:
    """Return `limits` of a process that may use one core."""
    core = max(os.sched_getaffinity(0))
    command = [sys.executable, "-m", "benchmarks.limits", str(core)]
    process = subprocess.run(command, cwd=machine.ROOT, capture_output=True, text=True, check=True)
    return json.loads(process.stdout)


if __name__ == "__main__":
    # Before JAX and numpy start one thread per core.
    os.sched_setaffinity(0, {int(sys.argv[1])})
    print(json.dumps(limits()))
