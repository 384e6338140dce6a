"""What the machine can do at most."""

from collections.abc import Iterator

from benchmarks import machine
from benchmarks.pieces import Setting
from benchmarks.record import Result


def measure(setting: Setting) -> Iterator[Result]:
    """All cores over one, each in a process of its own kind; the fastest of about a second."""
    one, all_cores = machine.limits_of_one_core(), machine.limits()
    words = {"GFLOP/s": "float32 matrix products", "GB/s": "copying, read and written"}
    for unit, what in words.items():
        ratio = all_cores[unit] / one[unit]
        yield Result(
            name=what,
            ratio=f"{machine.cores()} cores over one",
            least=ratio,
            median=ratio,
            measured={f"{unit} of one core": one[unit], f"{unit} of all": all_cores[unit]},
        )
