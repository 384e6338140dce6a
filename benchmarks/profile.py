"""Parts of the time of a training step, from a trace of XLA's operations."""

import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import jax

from benchmarks import shapes
from benchmarks.record import Result
from benchmarks.suite import Setting
from benchmarks.timing import TrainStep

STEPS = {"cpu": 5, "gpu": 3}
LONGEST = 10  # operations that are listed one by one on a GPU
RATIO = "share of the time of all operations"
# Parts of a step by a component of the operation's path in our code; the first match counts.
PARTS = {
    "attention": "attention, but for products not merged with it",
    "rope": "rotation",
    "loss": "loss",
    "jvp": "norms, gates, sums and copies of the layers",
}
PRODUCTS, OPTIMIZER = "matrix products", "AdamW and the norm of the gradient"
SAVED = "memory made for what the backward pass reads"
# The time of these operations includes the operations that they call.
_CONTAINERS = ("while", "call", "conditional")


def measure(setting: Setting) -> Iterator[Result | str]:
    """Yield the parts of each shape on a CPU, and the longest operations of `paper_2b` on a GPU."""
    for name, shape in shapes.train_shapes(setting.device, setting.dry).items():
        if setting.device == "gpu" and name != "paper_2b":
            continue
        programs = (TrainStep(shape.fitted(fitting)) for fitting in shape.fittings)
        program = next((program for program in programs if program.fits), None)
        if program is None:
            yield f"{name} does not fit this device's memory"
            continue
        num_steps = STEPS[setting.device]
        times = trace(program.make_update(), num_steps)
        paths = paths_of(program.compiled.as_text())
        if setting.device == "cpu":
            parts: Counter[str] = Counter()
            for operation, seconds in times.items():
                parts[part_of(paths.get(operation, ""))] += seconds
            labels = {part: f"{name}: {part}" for part in parts}
        else:
            parts = times
            labels = {op: f"{op}: {'/'.join(path.split('/')[-3:])}" for op, path in paths.items()}
            config = program.members[0]
            milliseconds = 1e3 * times.total() / num_steps
            yield (
                f"{config.data.batch_size} rows, remat={config.model.remat}: "
                f"{milliseconds:.1f} ms of operations a step"
            )
        for key, seconds in parts.most_common(None if setting.device == "cpu" else LONGEST):
            share, measured = seconds / times.total(), {"ms a step": 1e3 * seconds / num_steps}
            yield Result.from_ratio(labels.get(key, key), RATIO, share, measured=measured)


def part_of(path: str) -> str:
    """Return the part of a step to which an operation belongs, by its path in our code.

    An operation without a path clears the buffer in which the loop over layers saves activations.
    """
    if path.endswith("dot_general"):
        return PRODUCTS
    if not path:
        return SAVED
    return next((part for key, part in PARTS.items() if key in path), OPTIMIZER)


def trace(update: Callable[[], Any], steps: int) -> Counter[str]:
    """Return the seconds of each operation (`operations`) in `steps` calls after a warm-up."""
    jax.block_until_ready(update())
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            jax.block_until_ready([update() for _ in range(steps)])
        (path,) = Path(folder).rglob("*.xplane.pb")
        return operations(jax.profiler.ProfileData.from_file(str(path)).planes)


def operations(planes: Iterable[Any]) -> Counter[str]:
    """Return the seconds of each XLA operation on the devices, by its name in the program.

    On a CPU the times of all host threads are added up.

    Args:
      planes: of a trace (`jax.profiler.ProfileData`): lines of events with a name, a duration in
        nanoseconds, and statistics, of which `hlo_op` names the XLA operation.
    """
    times: Counter[str] = Counter()
    planes = list(planes)
    devices = [plane for plane in planes if plane.name.startswith("/device:GPU")]
    for plane in devices or planes:
        for line in plane.lines:
            # Other lines of a GPU repeat its streams as modules, steps and scopes.
            if devices and not line.name.startswith("Stream"):
                continue
            for event in line.events:
                # Kernels that a GPU starts as one graph have no operation's name.
                operation = str(dict(event.stats).get("hlo_op") or (devices and event.name) or "")
                if operation and not operation.startswith(_CONTAINERS):
                    times[operation] += event.duration_ns / 1e9
    return times


def paths_of(program: str) -> dict[str, str]:
    """Return the path in our code of the operations of a compiled program that have one."""
    return dict(re.findall(r'^\s*(?:ROOT )?%?([\w.-]+) = .*op_name="([^"]+)"', program, re.M))
