"""Free memory of this host and of its first device."""

from pathlib import Path

import jax

_GROUPS = "sys/fs/cgroup"


def free_device_memory() -> int | None:
    """Return the free bytes of the first device, on a CPU those of the host; None: unknown."""
    stats = jax.local_devices()[0].memory_stats()
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"] - stats["bytes_in_use"]
    return free_host_memory() if jax.default_backend() == "cpu" else None


def free_host_memory(root: Path = Path("/")) -> int | None:
    """Return the bytes that this process can still allocate; None where the system does not say.

    The least of `MemAvailable` and of what the process's control groups leave it: containers and
    SLURM jobs are killed at their group's limit, however much memory the machine has.

    Args:
      root: folder with `proc` and `sys`.
    """
    try:
        meminfo = _numbers(root / "proc/meminfo", unit=1024)
        groups = (root / "proc/self/cgroup").read_text().splitlines()
    except (OSError, ValueError):
        return None
    free = [meminfo["MemAvailable"]] if "MemAvailable" in meminfo else []
    for line in groups:
        number, controllers, path = line.split(":", 2)
        if number == "0":  # version 2: one tree for all controllers
            folder, limit, usage = root / _GROUPS, "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            folder = root / _GROUPS / "memory"
            limit, usage = "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        # Every group above limits too. In a container the tree may begin at the group itself.
        group = folder / path.lstrip("/")
        free += [_free_of(ancestor, limit, usage) for ancestor in (group, *group.parents)]
    return min((n for n in free if n is not None), default=None)


def _free_of(group: Path, limit: str, usage: str) -> int | None:
    """Return the bytes a control group leaves; None without a limit."""
    try:
        allowed, used = (int((group / name).read_text()) for name in (limit, usage))
        stat = _numbers(group / "memory.stat")
    except (OSError, ValueError):  # no such group, or "max"
        return None
    # Files that the kernel keeps in memory count as used, and give way.
    names = "active_file", "inactive_file"
    cached = sum(stat.get(f"total_{name}", stat.get(name, 0)) for name in names)
    return max(0, allowed - used + cached)


def _numbers(path: Path, unit: int = 1) -> dict[str, int]:
    """Return the second word of every line by the first."""
    lines = (line.split() for line in path.read_text().splitlines())
    return {parts[0].rstrip(":"): int(parts[1]) * unit for parts in lines if len(parts) > 1}
