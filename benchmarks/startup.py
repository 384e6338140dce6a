"""A run of one step, from its command to its end."""

import functools
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from benchmarks import machine
from benchmarks.record import Result
from benchmarks.suite import Setting
from benchmarks.timing import alternate

COMMAND = ("train.py", "demo", "train.num_steps=1", "train.warmup_steps=0")
# Runs a command with JAX's own compilation cache, which does not verify its entries.
UNVERIFIED = """
import runpy, sys
from experiment import compiled
compiled._verify_reads = lambda: None
del sys.argv[0]
runpy.run_path("train.py", run_name="__main__")
"""


def measure(setting: Setting) -> Iterator[Result]:
    """Compare `train.py demo` with an empty and a filled compilation cache, and JAX's import."""
    with tempfile.TemporaryDirectory() as cache:
        functions = {
            "warm": functools.partial(train, cache),  # the warm-up call fills the cache
            "cold": train_without_cache,
            "import": functools.partial(run_python, "-c", "import jax; jax.devices()"),
        }
        seconds = alternate(functions, min(setting.rounds, 2))
    yield Result.from_seconds(
        "train.py demo, one step",
        "time with programs in the compilation cache over without",
        seconds,
        at_most=0.6,
        measured={f"s, {name}": min(times) for name, times in seconds.items()},
    )
    yield Result.from_seconds(
        "train.py demo, one step, cached",
        "its time over that of importing JAX",
        {"warm": seconds["warm"], "import": seconds["import"]},
        measured={},
    )
    with tempfile.TemporaryDirectory() as verified, tempfile.TemporaryDirectory() as unverified:
        functions = {
            "verified": functools.partial(train, verified),
            "unverified": functools.partial(train, unverified, "-c", UNVERIFIED),
        }
        seconds = alternate(functions, setting.rounds, children_cpu_seconds)
    yield Result.from_seconds(
        "train.py demo, one step, cached, programs verified",
        "its CPU time over that without verification",
        seconds,
        at_most=1.05,
    )


def children_cpu_seconds() -> float:
    """Return the CPU time of all child processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def train_without_cache() -> None:
    """Train for one step with an empty compilation cache."""
    with tempfile.TemporaryDirectory() as cache:
        train(cache)


def train(cache: str, *launcher: str) -> None:
    """Train for one step in a process that keeps its programs in the folder `cache`."""
    with tempfile.TemporaryDirectory() as folder:
        run_python(*launcher, *COMMAND, "--workdir", f"{folder}/run", XDG_CACHE_HOME=cache)


def run_python(*arguments: str, **variables: str) -> None:
    """Run Python in the repository, with further environment variables."""
    # This variable would take precedence over XDG_CACHE_HOME (experiment.compiled).
    environment = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
    subprocess.run(
        [sys.executable, *arguments],
        cwd=machine.ROOT,
        env=environment | variables,
        capture_output=True,
        check=True,
    )
