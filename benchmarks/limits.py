"""The fastest matrix products and memory copies of the machine, one core and all."""

from collections.abc import Iterator

from benchmarks import machine
from benchmarks.record import Result
from benchmarks.suite import Setting
from utils.threads import num_cpus

NAMES = {"GFLOP/s": "float32 matrix products", "GB/s": "copying, read and written"}


def measure(setting: Setting) -> Iterator[Result]:
    """Yield the rate of all cores over the rate of one; each is the fastest of about a second."""
    one_core, all_cores = machine.limits_of_one_core(), machine.limits()
    for unit, name in NAMES.items():
        yield Result.from_ratio(
            name,
            f"{num_cpus()} cores over one",
            all_cores[unit] / one_core[unit],
            measured={f"{unit} of one core": one_core[unit], f"{unit} of all": all_cores[unit]},
        )
