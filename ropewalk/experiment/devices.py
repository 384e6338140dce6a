"""The platform that JAX computes on, its devices and their memory."""

import contextlib
import os
from typing import Any

import jax
import psutil

from ropewalk.utils.messages import one_line
from ropewalk.utils.threads import num_cpus


class PlatformError(ValueError):
    """JAX cannot use the platform that it was told to use; it says nothing about any data."""


def check_platform() -> None:
    """Make JAX find its devices, as its first computation would.

    Several processes must have found each other before (`experiment.distributed.initialize`).

    Raises:
      PlatformError: if JAX cannot use the platform.
    """
    if jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        raise PlatformError(
            "JAX's default is 64 bits here (JAX_ENABLE_X64 or jax_enable_x64), and models need 32; "
            "call jax.config.update('jax_enable_x64', False)"
        )
    try:
        jax.devices()
    except (RuntimeError, AssertionError) as error:  # no text in the latter: there is no GPU
        platforms = jax.config.jax_platforms  # pyright: ignore[reportAttributeAccessIssue]
        reason = one_line(str(error) or "no such device", 120)
        raise PlatformError(
            f"JAX cannot use the platform {platforms or 'of this machine'} ({reason}); set "
            "JAX_PLATFORMS=cpu, or unset it so that JAX chooses"
        ) from error


def device_per_core() -> None:
    """Make each core a CPU device, for members of a sweep; no effect once JAX is in use.

    It applies to the process. A setting of the user for CPU devices is not changed.
    """
    count = jax.config.jax_num_cpu_devices  # pyright: ignore[reportAttributeAccessIssue]
    if count > 0 or "device_count" in os.environ.get("XLA_FLAGS", ""):
        return
    with contextlib.suppress(RuntimeError):
        jax.config.update("jax_num_cpu_devices", num_cpus())


def device_memory() -> int | None:
    """Return the memory of all devices (for CPUs, of their machines), bytes; None: unknown."""
    stats = jax.local_devices()[0].memory_stats() or {}
    if "bytes_limit" in stats:
        return stats["bytes_limit"] * jax.device_count()
    is_cpu = jax.default_backend() == "cpu"
    return psutil.virtual_memory().total * jax.process_count() if is_cpu else None


def free_device_memory() -> int | None:
    """Return the free bytes of the first device, on a CPU those of the host; None: unknown."""
    stats = jax.local_devices()[0].memory_stats() or {}
    if "bytes_limit" in stats:
        return stats["bytes_limit"] - stats["bytes_in_use"]
    # Limits of containers and of SLURM jobs are not read.
    return psutil.virtual_memory().available if jax.default_backend() == "cpu" else None


def planned_bytes(compiled: Any) -> int:
    """Return the bytes of a compiled program's arguments, results and scratch on a device.

    Memory that an argument and a result share counts once.
    """
    stats = compiled.memory_analysis()
    total = stats.argument_size_in_bytes + stats.output_size_in_bytes + stats.temp_size_in_bytes
    return int(total - stats.alias_size_in_bytes)
