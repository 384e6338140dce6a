"""All benchmarks, and the protocol that runs one: measure, show, write a record.

A benchmark is a module of this package. Its `measure(setting)` yields results (`record.Result`) and
notes of one line. It runs alone in a process, so that it has all memory and set-up of devices.
"""

import dataclasses
import datetime
import importlib
import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.markdown import Markdown

from benchmarks import machine, record
from benchmarks.record import Record
from utils.git import current_commit

RESULTS = machine.ROOT / "benchmarks" / "results"
DRY_RESULTS = machine.ROOT / "runs" / "benchmarks"  # not in git


class Benchmark(NamedTuple):
    """Description of a benchmark.

    Attributes:
      summary: one line for `--help`.
      seconds: its time limit per device ("cpu", "gpu") on which `python -m benchmarks DEVICE` runs
        it; after that it skips the rest. Empty: it runs only by its own name.
    """

    summary: str
    seconds: Mapping[str, float] = {}


# In the order in which they run. `benchmarks gpu` takes at most 24 minutes.
BENCHMARKS = {
    "limits": Benchmark("matrix products and memory copies, one core and all", {"cpu": 540}),
    "conformance": Benchmark(
        "attention kernel of the device beside plain float32 attention", {"gpu": 180}
    ),
    "step": Benchmark(
        "training step: tokens/s, memory, share of the device's matrix products and of its peak",
        {"cpu": 540, "gpu": 450},
    ),
    "members": Benchmark(
        "sweeps of up to 16 members beside as many single runs", {"cpu": 540, "gpu": 300}
    ),
    "loop": Benchmark("time that saves and input take from the training loop", {"cpu": 540}),
    "startup": Benchmark("a run of one step, with and without a compilation cache", {"cpu": 540}),
    "profile": Benchmark("parts of the time of a training step", {"cpu": 540, "gpu": 90}),
    "peer": Benchmark(
        "training step beside transformers' Llama with torch's AdamW (needs torch)",
        {"cpu": 150, "gpu": 420},
    ),
    "evaluation": Benchmark("scoring beside a forward pass"),
    "decode": Benchmark("greedy decoding beside transformers' generate (needs torch)"),
    "published": Benchmark(
        "logits and greedy text at the sizes of SmolLM2-135M beside transformers (needs torch)"
    ),
    "theory": Benchmark("certified bounds beside Su's published search"),
}
# Every process gets these variables unless they are set.
ENVIRONMENT = {
    "cpu": {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"},  # 2 MiB pages, as in the Makefile
    "gpu": {
        "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.92",
        "JAX_COMPILATION_CACHE_DIR": str(DRY_RESULTS / "compiled"),
    },
}
# torch shares the GPU with a JAX that only reports the device.
TORCH_ENVIRONMENT = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


class MissingPackageError(ValueError):
    """A package of an extra is not installed; the message says how to install it."""


class Setting(NamedTuple):
    """Arguments of `measure`.

    Attributes:
      device: "cpu" or "gpu": which sizes and goals.
      rounds: alternations.
      dry: tiny models (`shapes.cut`), whose numbers mean nothing.
      deadline: in time of `time.monotonic`.
      folder: records of this machine's other benchmarks; None if there are none.
    """

    device: str = "cpu"
    rounds: int = 5
    dry: bool = False
    deadline: float = math.inf
    folder: Path | None = None

    def has_time(self, seconds: float) -> bool:
        """Return True if this many seconds are left."""
        return time.monotonic() + seconds < self.deadline


def set_of(device: str) -> list[str]:
    """Return the names of the benchmarks that `python -m benchmarks DEVICE` runs."""
    return [name for name, benchmark in BENCHMARKS.items() if device in benchmark.seconds]


def run(name: str, setting: Setting, out: Path | None = None, *, resume: bool = False) -> None:
    """Run one benchmark in this process and show its results.

    Args:
      name: key of BENCHMARKS.
      setting: without deadline and folder.
      out: folder of all machines' records; this one is written after every result, so that an
        interruption loses none. None: no file is written and no time limit applies.
      resume: skip the benchmark if its file is complete.

    Raises:
      MissingPackageError: if `out` is None; with `out` its message becomes a note.
    """
    device = machine.describe(accelerator=setting.device != "cpu")
    path = None
    if out is not None:
        folder = out / machine.folder_name(device)
        path = folder / f"{setting.device}-{name}.json"
        if resume and path.exists() and Record.read(path).complete:
            print(f"{name}: its file is complete; --again measures it again")
            return
        limit = math.inf if setting.dry else BENCHMARKS[name].seconds.get(setting.device, math.inf)
        setting = setting._replace(folder=folder, deadline=time.monotonic() + limit)
    console = Console(highlight=False, width=160)
    console.print(f"{name}: {BENCHMARKS[name].summary}")
    in_set = setting.device in BENCHMARKS[name].seconds
    where = device.get("accelerator", "cpu")
    empty = Record(
        command=(f"{setting.device} --only {name}" if in_set else name) + " --dry" * setting.dry,
        date=datetime.date.today().isoformat(),
        commit=current_commit() or "unknown",
        device=device,
        versions=machine.versions(),
        load=round(os.getloadavg()[0], 1),
        dry_run=f"dry run on {where}: these numbers say nothing" if setting.dry else "",
    )
    complete = _measure(name, setting, empty, path)
    console.print(Markdown(record.markdown([complete])))


def _measure(name: str, setting: Setting, result: Record, path: Path | None) -> Record:
    start = time.monotonic()

    def save(**changes) -> Record:
        seconds = round(time.monotonic() - start, 1)
        changed = dataclasses.replace(result, seconds=seconds, **changes)
        if path is not None:
            changed.write(path)
        return changed

    try:
        for item in importlib.import_module(f"benchmarks.{name}").measure(setting):
            if isinstance(item, str):
                result = save(notes=(*result.notes, item))
            else:
                result = save(results=(*result.results, item))
    except MissingPackageError as error:
        if path is None:
            raise
        result = save(notes=(*result.notes, str(error)))
    return save(complete=True)


def document(device: str, names: Sequence[str], out: Path) -> str:
    """Return the records of a set as Markdown, machine by machine."""
    machines = [
        [path for name in names if (path := folder / f"{device}-{name}.json").exists()]
        for folder in sorted(path for path in out.glob("*") if path.is_dir())
    ]
    parts = [record.markdown([Record.read(path) for path in paths]) for paths in machines if paths]
    return "\n".join(parts) or "Not measured yet.\n"


def insert(text: str, page: str, device: str) -> str | None:
    """Return `page` with `text` between the marks of a set; None if it lacks the marks."""
    start, end = f"<!-- python -m benchmarks {device} -->\n", f"<!-- end of {device} -->"
    if start not in page or end not in page:
        return None
    before, _, rest = page.partition(start)
    return before + start + "\n" + text + "\n" + end + rest.partition(end)[2]
