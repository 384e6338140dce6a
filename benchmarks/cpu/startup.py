"""A short run from its command to its end."""

import functools
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from benchmarks import machine
from benchmarks.pieces import Setting
from benchmarks.record import Result
from benchmarks.timing import alternate

CACHE = "XDG_CACHE_HOME"  # where `experiment.compiled` keeps programs
_OTHERS = "JAX_COMPILATION_CACHE_DIR"  # which would be taken instead
ONE_STEP = ("train.num_steps=1", "train.warmup_steps=0")
# Programs are kept and read as JAX does it, without hashes.
UNVERIFIED = """
import runpy, sys
from experiment import compiled
compiled._verify_reads = lambda: None
del sys.argv[0]
runpy.run_path("train.py", run_name="__main__")
"""


def measure(setting: Setting) -> Iterator[Result]:
    """`train.py demo` of one step: compiled anew, compiled before, verified or not."""
    with tempfile.TemporaryDirectory() as warm:
        seconds = alternate(
            {
                "cold": anew,
                # The call that does not count fills it.
                "warm": functools.partial(train, warm),
                "import": functools.partial(python, "-c", "import jax; jax.devices()"),
            },
            min(setting.rounds, 2),
        )
    measured = {f"s, {name}": min(taken) for name, taken in seconds.items()}
    yield Result.of_seconds(
        "train.py demo, one step",
        "time with programs in the compilation cache over without",
        seconds["warm"],
        seconds["cold"],
        at_most=0.6,
        measured=measured,
    )
    yield Result.of_seconds(
        "train.py demo, one step, cached",
        "its time over that of importing JAX",
        seconds["warm"],
        seconds["import"],
    )
    with tempfile.TemporaryDirectory() as verified, tempfile.TemporaryDirectory() as unverified:
        seconds = alternate(
            {
                "verified": functools.partial(train, verified),
                "unverified": functools.partial(train, unverified, "-c", UNVERIFIED),
            },
            setting.rounds,
            cpu_seconds,
        )
    yield Result.of_seconds(
        "train.py demo, one step, cached, programs verified",
        "its CPU time over that without verification",
        seconds["verified"],
        seconds["unverified"],
        at_most=1.05,
    )


def anew() -> None:
    """With nothing compiled before."""
    with tempfile.TemporaryDirectory() as cold:
        train(cold)


def cpu_seconds() -> float:
    """CPU time of all processes started here that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def train(cache: str, *words: str) -> None:
    """One step in a process of its own, whose programs are kept in `cache`; `words` come before."""
    with tempfile.TemporaryDirectory() as folder:
        python(
            *words, "train.py", "demo", "--workdir", f"{folder}/run", *ONE_STEP, **{CACHE: cache}
        )


def python(*words: str, **environment: str) -> None:
    """Runs one of this repository's commands."""
    subprocess.run(
        [sys.executable, *words],
        cwd=machine.ROOT,
        env={**{k: v for k, v in os.environ.items() if k != _OTHERS}, **environment},
        capture_output=True,
        check=True,
    )
