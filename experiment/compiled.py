"""Compiled programs kept on the disk by JAX's cache, so that the second start of a run is quick.

JAX reads a stored program back without any check: one changed bit can compute other numbers, or end
the process. Each process therefore hashes the programs that it stored when it ends, and removes,
when it starts, those that differ from their hash or have none.
"""

import atexit
import contextlib
import hashlib
import os
import time
from pathlib import Path

import jax

from utils.files import write_atomically

_UNUSED_DAYS = 30
_MIN_SECONDS = 0.2  # programs that compile faster are compiled at every start


def keep_programs() -> None:
    """Make JAX keep compiled programs for later processes; call it before anything is compiled.

    They go to `~/.cache/ropewalk` (or XDG_CACHE_HOME), in a folder for each kind of processor:
    programs for one may use instructions that another lacks. Programs that were not read for a
    month are removed. If nothing can be written there, nothing is kept.

    JAX_COMPILATION_CACHE_DIR names another folder, or none if it is empty; JAX reads it unchecked.
    """
    if jax.config.jax_compilation_cache_dir is not None:  # pyright: ignore
        return
    cache = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    folder = Path(cache, "ropewalk", f"programs-{_processor()}")
    with contextlib.suppress(OSError, RuntimeError):  # RuntimeError: there is no home
        folder.mkdir(parents=True, exist_ok=True)
        known = _remove_damaged(folder)
        atexit.register(_write_hashes, folder, known)
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", _MIN_SECONDS)
        # XLA's own files beside the programs (autotuning on GPUs) would be read unchecked.
        jax.config.update("jax_persistent_cache_enable_xla_caches", "none")


def _remove_damaged(folder: Path) -> set[Path]:
    """Remove programs that differ from their hash, or were not used; return the others."""
    known = set()
    for path in folder.glob("*-cache"):
        with contextlib.suppress(OSError):  # another process removes files too
            status, hash_path = path.stat(), _hash_path(path)
            is_old = time.time() - max(status.st_atime, status.st_mtime) > _UNUSED_DAYS * 86_400
            if is_old or not hash_path.exists() or hash_path.read_text() != _hash(path):
                path.unlink()
                hash_path.unlink(missing_ok=True)
            else:
                known.add(path)
    return known


def _write_hashes(folder: Path, known: set[Path]) -> None:
    """Write the hash of each program that is not `known`."""
    with contextlib.suppress(OSError, ValueError):
        for path in {*folder.glob("*-cache")} - known:
            if not _hash_path(path).exists():
                write_atomically(_hash_path(path), _hash(path))


def _hash_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def _hash(path: Path) -> str:
    # With its name: a program in another one's place is damage too.
    return hashlib.sha256(path.name.encode() + path.read_bytes()).hexdigest()


def _processor() -> str:
    """Return a short name for the instructions that this machine's processor has."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(errors="replace").splitlines() if info.exists() else []
    descriptions = [line for line in lines if line.startswith(("model name", "flags", "Features"))]
    of_one = sorted(set(descriptions)) or [os.uname().machine if hasattr(os, "uname") else ""]
    return hashlib.sha256("\n".join(of_one).encode()).hexdigest()[:8]
