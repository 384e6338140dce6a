"""Free memory of this host and of its first device."""

import re
from pathlib import Path

import jax


def free_device_memory() -> int | None:
    """Return the free bytes of the first device, on a CPU those of the host; None: unknown."""
    stats = jax.local_devices()[0].memory_stats()
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"] - stats["bytes_in_use"]
    return free_host_memory() if jax.default_backend() == "cpu" else None


def free_host_memory() -> int | None:
    """Return the bytes that Linux can still give to programs; None where it does not say.

    Limits of containers and of SLURM jobs are not read.
    """
    path = Path("/proc/meminfo")
    match = re.search(r"^MemAvailable: +(\d+) kB", path.read_text() if path.exists() else "", re.M)
    return int(match[1]) * 1024 if match else None
