"""The protocol of all benchmarks: ratios of things that alternate on one machine.

The speed of a machine varies by a factor of four between days, so a result is a ratio. A benchmark
is a module of this package with `measure(setting)`, which yields results and notes of one line. It
runs alone in a process, so that it has all memory and the set-up of devices.
"""

import contextlib
import importlib
import multiprocessing
import os
import platform
import signal
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import jax

from ropewalk.utils.git import current_commit
from ropewalk.utils.threads import num_cpus


class Setting(NamedTuple):
    """Arguments of `measure`.

    Attributes:
      device: "cpu" or "gpu": which sizes.
      rounds: alternations.
      dry: tiny models (`shapes.cut`), whose numbers mean nothing.
    """

    device: str = "cpu"
    rounds: int = 5
    dry: bool = False


class Result(NamedTuple):
    """One ratio.

    Attributes:
      name: what was measured.
      ratio: description of numerator and denominator.
      of_fastest: ratio of the fastest runs.
      median: median of the ratios of all rounds.
      measured: values behind the ratio, by name with unit ("tokens/s").
    """

    name: str
    ratio: str
    of_fastest: float
    median: float
    measured: Mapping[str, float]

    @classmethod
    def from_seconds(
        cls,
        name: str,
        ratio: str,
        seconds: Mapping[str, Sequence[float]],
        factor: float = 1.0,
        measured: Mapping[str, float] | None = None,
    ) -> "Result":
        """Return the ratio of two things that alternated.

        Args:
          name, ratio: fields of the result.
          seconds: one entry per round, of the numerator first and of the denominator second.
          factor: multiplies the ratio, such as a quotient of amounts of work.
          measured: as in the result; None: the milliseconds of the fastest runs.
        """
        numerator, denominator, *_ = seconds.values()
        ratios = [a / b for a, b in zip(numerator, denominator, strict=True)]
        fastest = {f"ms, {key}": 1e3 * min(times) for key, times in seconds.items()}
        of_fastest = factor * min(numerator) / min(denominator)
        median = factor * statistics.median(ratios)
        return cls(name, ratio, of_fastest, median, measured or fastest)


def run(name: str, setting: Setting) -> None:
    """Run one benchmark in this process; print its notes and results as they come.

    Raises:
      ValueError: if a package is missing.
    """
    print(_conditions(setting), flush=True)
    for item in importlib.import_module(f"ropewalk.tpu.benchmarks.{name}").measure(setting):
        if isinstance(item, Result):
            measured = ", ".join(f"{value:.4g} {unit}" for unit, value in item.measured.items())
            ratios = f"{item.of_fastest:.3g} of the fastest, median {item.median:.3g}"
            item = f"{item.name}: {ratios} ({item.ratio}); {measured}"
        print(item, flush=True)


def _conditions(setting: Setting) -> str:
    """Return the device, versions, load and commit; never a host name or a path."""
    # On a CPU `jax.devices` would start the backend before its set-up.
    device = platform.machine() if setting.device == "cpu" else jax.devices()[0].device_kind
    facts = [f"{device}, {num_cpus()} cores, load {os.getloadavg()[0]:.1f}"]
    facts += [f"python {platform.python_version()}, jax {jax.__version__}"]
    facts += [f"commit {current_commit() or 'unknown'}"]
    return "; ".join(facts + ["dry run: these numbers say nothing"] * setting.dry)


def is_out_of_memory(error: Exception) -> bool:
    """Return whether JAX raised the error because a program does not fit into memory."""
    return "RESOURCE_EXHAUSTED" in str(error)


def timed(function: Callable[[], Any], steps: int = 1) -> Callable[[], float]:
    """Return a function that calls `function` several times, waits, and returns the seconds."""

    def call() -> float:
        start = time.perf_counter()
        jax.block_until_ready([function() for _ in range(steps)])
        return time.perf_counter() - start

    return call


def alternate(functions: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Return the seconds that each function returns in `rounds` alternations after a warm-up."""
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for index in range(rounds + 1):
        for name, function in functions.items():
            value = function()
            if index:
                seconds[name].append(value)
    return seconds


_functions: list[Callable[..., Any]] = []  # of a child process


@contextlib.contextmanager
def start(function: str, *arguments: object) -> Iterator[Callable[..., float]]:
    """Start a process that calls `function`; yield a function that calls its result there.

    The yielded function returns the seconds of the call. While the process waits it is stopped
    (SIGSTOP), because threads that wait (those of torch spin) would slow the process that is timed.

    Args:
      function: `module:name`; it returns the function to be timed.
      arguments: of `function`.

    Raises:
      Exception: what `function` or its result raised.
    """
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        pid = pool.submit(os.getpid).result()

        def call(task: Callable, *values: object) -> Any:
            os.kill(pid, signal.SIGCONT)
            try:
                return pool.submit(task, *values).result()
            finally:
                with contextlib.suppress(ProcessLookupError):  # it died
                    os.kill(pid, signal.SIGSTOP)

        try:
            call(_make, function, arguments)
            yield lambda *values: call(_call, *values)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def _make(function: str, arguments: tuple) -> None:
    module, _, name = function.partition(":")
    _functions.append(getattr(importlib.import_module(module), name)(*arguments))


def _call(*values: object) -> float:
    return timed(lambda: _functions[-1](*values))()
