"""The machine on which benchmarks run: its device and versions."""

import importlib.metadata
import os
import platform
import re
from pathlib import Path
from typing import Any

from utils.threads import num_cpus

ROOT = Path(__file__).parent.parent
PACKAGES = ("jax", "jaxlib", "flax", "torch", "transformers")


def versions() -> dict[str, str]:
    """Return the versions of Python and of the installed PACKAGES, and glibc's settings."""
    result = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            result[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    if tunables := os.environ.get("GLIBC_TUNABLES"):
        result["with"] = tunables
    return result


def describe(*, accelerator: bool) -> dict[str, Any]:
    """Return the processor, its cores and, if `accelerator`, JAX's device; never a host name.

    Asking JAX for a device starts its backend, after which CPU devices cannot be set up.
    """
    result = {"processor": processor(), "cores": num_cpus()}
    if not accelerator:
        return result
    import jax

    device = jax.devices()[0]
    if device.platform == "cpu":
        return result
    limit = (device.memory_stats() or {}).get("bytes_limit")
    memory = {"GiB for JAX": round(limit / 2**30, 1)} if limit else {}
    return {"accelerator": device.device_kind, **memory, **result}


def processor() -> str:
    """Return the processor's model, from Linux or Python."""
    try:
        match = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.M)
    except OSError:
        match = None
    return match.group(1).strip() if match else platform.processor() or platform.machine()


def folder_name(device: dict[str, Any]) -> str:
    """Return the name of the results folder for machines of this kind (`describe`)."""
    name = device.get("accelerator") or f"{device['processor']} {device['cores']} cores"
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
