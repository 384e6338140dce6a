"""The machine: its device and versions, and its fastest matrix products and copies.

`python -m benchmarks.machine CORE` prints the limits of one core as JSON.
"""

import importlib.metadata
import json
import math
import os
import platform
import re
import subprocess
import sys
import timeit
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from utils.threads import num_cpus

ROOT = Path(__file__).parent.parent
MATMUL_SIZES = (1024, 2048)  # the limit is the fastest of them
COPIED_BYTES = 2**28  # more than any cache holds
PACKAGES = ("jax", "jaxlib", "flax", "torch", "transformers")


def versions() -> dict[str, str]:
    """Return the versions of Python and of the installed PACKAGES, and glibc's settings."""
    result = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            result[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    if tunables := os.environ.get("GLIBC_TUNABLES"):
        result["with"] = tunables
    return result


def describe(*, accelerator: bool) -> dict[str, Any]:
    """Return the processor, its cores and, if `accelerator`, JAX's device; never a host name.

    Asking JAX for a device starts its backend, after which CPU devices cannot be set up.
    """
    result = {"processor": processor(), "cores": num_cpus()}
    if not accelerator:
        return result
    import jax

    device = jax.devices()[0]
    if device.platform == "cpu":
        return result
    limit = (device.memory_stats() or {}).get("bytes_limit")
    memory = {"GiB for JAX": round(limit / 2**30, 1)} if limit else {}
    return {"accelerator": device.device_kind, **memory, **result}


def processor() -> str:
    """Return the processor's model, from Linux or Python."""
    try:
        match = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.M)
    except OSError:
        match = None
    return match.group(1).strip() if match else platform.processor() or platform.machine()


def folder_name(device: dict[str, Any]) -> str:
    """Return the name of the results folder for machines of this kind (`describe`)."""
    name = device.get("accelerator") or f"{device['processor']} {device['cores']} cores"
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


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


def _fastest(function: Callable[[], Any], seconds: float = 1.0) -> float:
    """Return the time of the fastest of at least three calls, `seconds` in all, after a warm-up."""
    function()
    timer = timeit.Timer(function)
    once = timer.timeit(1)
    return min(timer.repeat(max(3, math.ceil(seconds / once)), 1))


def limits_of_one_core() -> dict[str, float]:
    """Return `limits` of a process that may use one core."""
    core = max(os.sched_getaffinity(0))
    command = [sys.executable, "-m", "benchmarks.machine", str(core)]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return json.loads(process.stdout)


if __name__ == "__main__":
    # Before JAX and numpy start one thread per core.
    os.sched_setaffinity(0, {int(sys.argv[1])})
    print(json.dumps(limits()))
