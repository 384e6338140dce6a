"""Compiled programs kept on the disk by JAX's cache, so that the second start of a run is quick.

JAX reads a stored program back without any check: one changed bit can compute other numbers, or end
the process. Each process therefore hashes the programs that it stored when it ends, and removes,
when it starts, those that differ from their hash or have none.
"""

import atexit
import contextlib
import hashlib
import os
from pathlib import Path

import jax

from ropewalk.utils.files import write_atomically

_MIN_SECONDS = 0.2  # programs that compile faster are compiled at every start


def keep_programs() -> None:
    """Make JAX keep compiled programs for later processes; call it before anything is compiled.

    They go to `~/.cache/ropewalk` (or XDG_CACHE_HOME), in a folder for each kind of processor:
    programs for one may use instructions that another lacks. If nothing can be written there,
    nothing is kept.

    JAX_COMPILATION_CACHE_DIR names another folder, or none if it is empty; JAX reads it unchecked.
    """
    if jax.config.jax_compilation_cache_dir is not None:  # pyright: ignore
        return
    cache = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    info = Path("/proc/cpuinfo")
    lines = set(info.read_text(errors="replace").splitlines()) if info.exists() else set()
    kinds = sorted(line for line in lines if line.startswith(("model name", "flags", "Features")))
    name = hashlib.sha256("\n".join(kinds or os.uname().machine).encode()).hexdigest()[:8]
    folder = Path(cache, "ropewalk", f"programs-{name}")
    with contextlib.suppress(OSError, RuntimeError):  # RuntimeError: there is no home
        folder.mkdir(parents=True, exist_ok=True)
        remove_damaged(folder)
        atexit.register(write_hashes, folder)
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", _MIN_SECONDS)
        # XLA's own files beside the programs (autotuning on GPUs) would be read unchecked.
        jax.config.update("jax_persistent_cache_enable_xla_caches", "none")


def remove_damaged(folder: Path) -> None:
    """Remove programs that differ from their hash."""
    for path in folder.glob("*-cache"):
        with contextlib.suppress(OSError):  # another process removes files too
            hash_path = Path(f"{path}.sha256")
            if not hash_path.exists() or hash_path.read_text() != _hash(path):
                path.unlink()
                hash_path.unlink(missing_ok=True)


def write_hashes(folder: Path) -> None:
    """Write the hash of each program that has none."""
    with contextlib.suppress(OSError, ValueError):
        for path in folder.glob("*-cache"):
            if not Path(f"{path}.sha256").exists():
                write_atomically(Path(f"{path}.sha256"), _hash(path))


def _hash(path: Path) -> str:
    # With its name: a program in another one's place is damage too.
    return hashlib.sha256(path.name.encode() + path.read_bytes()).hexdigest()
