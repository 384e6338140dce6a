"""The protocol of all benchmarks: ratios of things that alternate on one machine.

The speed of a machine varies by a factor of four between days, so a result is a ratio. A benchmark
is a module of this package with `measure(setting)`, which yields results and notes of one line. It
runs alone in a process, so that it has all memory and the set-up of devices.
"""

import contextlib
import dataclasses
import datetime
import importlib
import importlib.metadata
import json
import math
import multiprocessing
import os
import platform
import re
import signal
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jax
from rich.console import Console
from rich.table import Table

from utils.files import write_atomically
from utils.git import current_commit
from utils.threads import num_cpus

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "runs" / "benchmarks"  # not in git
PACKAGES = ("jax", "jaxlib", "flax", "torch", "transformers")


class Setting(NamedTuple):
    """Arguments of `measure`.

    Attributes:
      device: "cpu" or "gpu": which sizes and goals.
      rounds: alternations.
      dry: tiny models (`shapes.cut`), whose numbers mean nothing.
      folder: results of this machine's benchmarks.
    """

    device: str = "cpu"
    rounds: int = 5
    dry: bool = False
    folder: Path = RESULTS

    def path(self, name: str) -> Path:
        """Return the file of a benchmark's results."""
        return self.folder / f"{self.device}-{name}{'-dry' * self.dry}.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """One ratio and its goal.

    Attributes:
      name: what was measured.
      ratio: description of numerator and denominator.
      least: ratio of the fastest runs.
      median: median of the ratios of all rounds; the goal applies to it.
      at_least, at_most: the goal; None without one.
      measured: values behind the ratio, by name with unit ("tokens/s").
    """

    name: str
    ratio: str
    least: float
    median: float
    at_least: float | None = None
    at_most: float | None = None
    measured: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @property
    def goal(self) -> str:
        """The goal and whether the median meets it (NaN never does); empty without a goal."""
        if self.at_least is not None:
            return f"at least {self.at_least:g}: {_verdict(self.median >= self.at_least)}"
        if self.at_most is not None:
            return f"at most {self.at_most:g}: {_verdict(self.median <= self.at_most)}"
        return ""

    @classmethod
    def from_seconds(
        cls,
        name: str,
        ratio: str,
        seconds: Mapping[str, Sequence[float]],
        factor: float = 1.0,
        **fields: Any,
    ) -> "Result":
        """Return the ratio of two things that alternated.

        Args:
          name, ratio: fields of the result.
          seconds: one entry per round, of the numerator first and of the denominator second.
          factor: multiplies the ratio, such as a quotient of amounts of work.
          fields: other fields; `measured` is the milliseconds of the fastest runs by default.
        """
        numerator, denominator, *_ = seconds.values()
        ratios = [a / b for a, b in zip(numerator, denominator, strict=True)]
        return cls(
            name=name,
            ratio=ratio,
            least=factor * min(numerator) / min(denominator),
            median=factor * statistics.median(ratios),
            **{"measured": {f"ms, {key}": 1e3 * min(x) for key, x in seconds.items()}, **fields},
        )


def _verdict(met: bool) -> str:
    return "met" if met else "missed"


def run(name: str, setting: Setting) -> None:
    """Run one benchmark in this process, print its results, and write them after each one.

    Raises:
      ValueError: if a package is missing.
    """
    record = {"benchmark": name, **conditions(setting), "notes": [], "results": []}
    for item in importlib.import_module(f"benchmarks.{name}").measure(setting):
        if isinstance(item, str):
            print(item, flush=True)
            record["notes"].append(item)
        else:
            values = dataclasses.asdict(item) | {"goal": item.goal}
            record["results"].append({key: _finite(value) for key, value in values.items()})
        setting.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(setting.path(name), json.dumps(record, indent=2) + "\n")
    _print(record)


def conditions(setting: Setting) -> dict[str, Any]:
    """Return the device, versions, load, commit and date; never a host name or a path."""
    try:
        match = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.M)
    except OSError:
        match = None
    installed = {d.metadata["Name"] for d in importlib.metadata.distributions()}
    versions = {p: importlib.metadata.version(p) for p in PACKAGES if p in installed}
    result = {
        "processor": match[1].strip() if match else platform.machine(),
        "cores": num_cpus(),
        "load": round(os.getloadavg()[0], 1),
        "versions": {"python": platform.python_version(), **versions},
        "commit": current_commit() or "unknown",
        "date": datetime.date.today().isoformat(),
    }
    if tunables := os.environ.get("GLIBC_TUNABLES"):
        result["GLIBC_TUNABLES"] = tunables
    if setting.device != "cpu":  # on a CPU this would start the backend before its set-up
        result["accelerator"] = jax.devices()[0].device_kind
    if setting.dry:
        result["dry run"] = "these numbers say nothing"
    return result


def _finite(value: Any) -> Any:
    # JSON has no NaN.
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _print(record: Mapping[str, Any]) -> None:
    table = Table("figure", "least / median", "of what", "goal", "measured", box=None)
    for row in record["results"]:
        ratios = " / ".join("-" if row[k] is None else f"{row[k]:.3g}" for k in ("least", "median"))
        measured = ", ".join(f"{value:.4g} {name}" for name, value in row["measured"].items())
        table.add_row(row["name"], ratios, row["ratio"], row["goal"], measured)
    console = Console(highlight=False)
    facts = {k: v for k, v in record.items() if k not in ("notes", "results")}
    console.print(", ".join(f"{name}: {value}" for name, value in facts.items()), soft_wrap=True)
    console.print(table)


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
