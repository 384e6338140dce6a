"""A run of one step, from its command to its end."""

import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from benchmarks import machine
from benchmarks.record import Result
from benchmarks.suite import Setting
from benchmarks.timing import alternate

COMMAND = ("train.py", "demo", "train.num_steps=1", "train.warmup_steps=0")


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


def train_without_cache() -> None:
    """Train for one step with an empty compilation cache."""
    with tempfile.TemporaryDirectory() as cache:
        train(cache)


def train(cache: str) -> None:
    """Train for one step in a process that keeps its programs in the folder `cache`."""
    with tempfile.TemporaryDirectory() as folder:
        run_python(*COMMAND, "--workdir", f"{folder}/run", XDG_CACHE_HOME=cache)


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
