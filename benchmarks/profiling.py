"""What a device did while a program ran, operation by operation."""

import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax


def traced(update: Callable[[], Any], steps: int) -> Counter[str]:
    """Seconds that `operations` took in `steps` calls; the first call, which compiles, is apart."""
    jax.block_until_ready(update())
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            jax.block_until_ready([update() for _ in range(steps)])
        (path,) = Path(folder).rglob("*.xplane.pb")
        return operations(jax.profiler.ProfileData.from_file(str(path)).planes)


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
    return dict(re.findall(r'^\s*(?:ROOT )?%?([\w.-]+) = .*op_name="([^"]+)"', program, re.M))
