"""Where a step's time goes: the operations that take longest."""

import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import jax

from benchmarks import shapes
from benchmarks.gpu.fitting import compile_step, fitted
from benchmarks.pieces import Setting
from benchmarks.record import Result

STEPS, LONGEST = 3, 10


def measure(setting: Setting) -> Iterator[Result | str]:
    """Of `paper_2b` on rows of 4,096 tokens, the first way that fits."""
    shape = shapes.on_gpu(setting.scale)["paper_2b"]
    for tried in shape.tried:
        program = compile_step(fitted(shape.config, tried))
        if program.fits:
            break
    else:
        yield "paper_2b does not fit into this device's memory"
        return
    update = program.updates()
    jax.block_until_ready(update())
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            jax.block_until_ready([update() for _ in range(STEPS)])
        (path,) = Path(folder).rglob("*.xplane.pb")
        spent = operations(jax.profiler.ProfileData.from_file(str(path)).planes)
    total = sum(spent.values())
    sources = sources_of(program.text())
    milliseconds = 1e3 * total / STEPS
    yield f"{tried.rows} rows, remat={tried.remat}: {milliseconds:.1f} ms of operations a step"
    for name, seconds in spent.most_common(LONGEST):
        yield Result(
            name=f"{name}: {sources[name]}" if name in sources else name,
            ratio="share of the time of all operations",
            least=seconds / total,
            median=seconds / total,
            measured={"ms a step": 1e3 * seconds / STEPS},
        )


def operations(planes: Iterable[Any]) -> Counter[str]:
    """Seconds of each operation of XLA's on the devices, by its name in the compiled program.

    Of a CPU those on the host's threads, all threads added up.

    Args:
      planes: of a trace (`jax.profiler.ProfileData`): lines of events with a name, a duration in
        nanoseconds, and statistics, of which `hlo_op` says that an event is one of XLA's.
    """
    spent: Counter[str] = Counter()
    planes = list(planes)
    devices = [plane for plane in planes if plane.name.startswith("/device:GPU")]
    for plane in devices or planes:
        for line in plane.lines:
            # A GPU's further lines say the same of modules, steps and scopes.
            if devices and not line.name.startswith("Stream"):
                continue
            for event in line.events:
                statistics = dict(event.stats)
                # Kernels that a GPU starts as one graph come without an operation's name.
                operation = str(statistics.get("hlo_op") or (devices and event.name) or "")
                # A loop's own event holds those of what it calls.
                if operation and not operation.startswith(_HOLDING):
                    spent[operation] += event.duration_ns / 1e9
    return spent


_HOLDING = ("while", "call", "conditional")


def sources_of(program: str) -> dict[str, str]:
    """Where in our code each operation of a compiled program comes from, as far as it says so."""
    found = re.findall(r'^\s*(?:ROOT )?%?([\w.-]+) = .*op_name="([^"]+)"', program, re.M)
    return {name: "/".join(path.split("/")[-3:]) for name, path in found}
