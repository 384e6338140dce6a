"""What a machine is, and what it can do at most: matrix products and copies, of one core and all.

`python -m benchmarks.machine` prints the limits of the cores that it may use, as JSON.
"""

import datetime
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
MATMUL_SIZES = (1024, 2048)  # the fastest of them is the limit
COPIED_BYTES = 2**28  # beyond any cache
VERSIONS = ("jax", "jaxlib", "flax", "torch", "transformers")


def versions() -> dict[str, str]:
    """Of Python and of those of `VERSIONS` that are installed, and how memory is taken."""
    found = {"python": platform.python_version()}
    for name in VERSIONS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    if given := os.environ.get("GLIBC_TUNABLES"):
        found["with"] = given
    return found


def commit() -> str:
    """Of the code that runs, with "+" where it was changed since; "unknown" without git."""
    try:
        found, changes = (
            subprocess.run(
                ["git", *words], cwd=ROOT, capture_output=True, text=True, check=True
            ).stdout.strip()
            for words in (
                ["rev-parse", "--short=10", "HEAD"],
                # Results that are being written change no figure.
                ["status", "--porcelain", "--", ".", ":!benchmarks/results", ":!*.md"],
            )
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found + "+" * bool(changes)


def today() -> str:
    """ISO 8601."""
    return datetime.date.today().isoformat()


def device(*, accelerator: bool = True) -> dict[str, Any]:
    """What computes: an accelerator, if JAX is asked for one, and the processor. No host's name."""
    if not accelerator:
        return {"processor": processor(), "cores": cores()}
    import jax

    first = jax.devices()[0]
    stats = first.memory_stats() or {}
    own = {}
    if first.platform != "cpu":
        own = {"accelerator": first.device_kind}
        if limit := stats.get("bytes_limit"):
            own["GiB for JAX"] = round(limit / 2**30, 1)
    return {**own, "processor": processor(), "cores": cores()}


def processor() -> str:
    """The model, as Linux or Python call it."""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.M)
    except OSError:
        found = None
    return found.group(1).strip() if found else platform.processor() or platform.machine()


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def folder_of(device: dict[str, Any]) -> str:
    """A folder's name for machines of this kind."""
    words = device.get("accelerator") or f"{device['processor']} {device['cores']} cores"
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")


def fastest(function: Callable[[], Any], seconds: float = 1.0) -> float:
    """Seconds of the fastest call within `seconds`, of at least three after one unmeasured."""
    function()
    taken, end = [], time.perf_counter() + seconds
    while len(taken) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        function()
        taken.append(time.perf_counter() - start)
    return min(taken)


def matmul(size: int) -> Callable[[], Any]:
    """A float32 product of square matrices by XLA, as a training step computes its own."""
    import jax
    import jax.numpy as jnp

    keys = jax.random.split(jax.random.key(0))
    left, right = (jax.random.normal(key, (size, size), jnp.float32) for key in keys)
    product = jax.jit(lambda left, right: left @ right)
    return lambda: product(left, right).block_until_ready()


def limits() -> dict[str, float]:
    """GFLOP/s of matrix products, the faster of XLA's and numpy's, and GB/s read and written."""
    import numpy as np

    flops = {size: 2 * size**3 for size in MATMUL_SIZES}
    rates = [flops[size] / fastest(matmul(size)) for size in MATMUL_SIZES]
    for size in MATMUL_SIZES:
        left = np.ones((size, size), np.float32)
        rates.append(flops[size] / fastest(lambda left=left: left @ left))
    blocks = [np.ones((2, COPIED_BYTES // 8 // cores()), np.float32) for _ in range(cores())]

    def copy():
        threads = [threading.Thread(target=np.copyto, args=tuple(block)) for block in blocks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    moved = sum(block.nbytes for block in blocks)
    return {"GFLOP/s": max(rates) / 1e9, "GB/s": moved / fastest(copy) / 1e9}


def limits_of_one_core() -> dict[str, float]:
    """`limits` of a process that may use one core only."""
    core = max(os.sched_getaffinity(0))
    found = subprocess.run(
        [sys.executable, "-m", "benchmarks.machine", "--core", str(core)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(found.stdout)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--core"]:
        # Before JAX and numpy start as many threads as there are cores.
        os.sched_setaffinity(0, {int(sys.argv[2])})
    print(json.dumps(limits()))
