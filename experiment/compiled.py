"""Compiled programs kept on the disk by JAX's cache, so that the second start of a run is quick.

JAX reads a stored program back without any check: one changed bit can compute other numbers, or end
the process. Here each program is stored after a SHA-256 hash, which every read verifies.
"""

import contextlib
import hashlib
import os
import secrets
import sys
import time
from pathlib import Path

import jax
from jax._src import compilation_cache  # JAX has no public place for a cache of one's own
from jax._src.lru_cache import LRUCache

_UNUSED_DAYS = 30
_MIN_SECONDS = 0.2  # programs that compile faster are compiled at every start
_HASH_BYTES = hashlib.sha256().digest_size
_SUFFIX = ".sha256"  # JAX by itself neither reads these files nor writes such names


def keep_programs() -> None:
    """Make JAX keep compiled programs for later processes; call it before anything is compiled.

    They go to `~/.cache/ropewalk` (or XDG_CACHE_HOME), in a folder for each kind of processor:
    programs for one may use instructions that another lacks. Files that were not read for a month
    are removed. If nothing can be written there, nothing is kept.

    JAX_COMPILATION_CACHE_DIR names another folder, or none if it is empty. Reads are verified there
    too; programs that JAX stored there by itself have no hash and are not read.
    """
    configured = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    if configured == "":
        return
    if configured is None:
        cache = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
        folder = Path(cache, "ropewalk", f"compiled-{_processor()}")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _remove_unused(folder)
        except (OSError, RuntimeError):  # RuntimeError: there is no home
            return
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", _MIN_SECONDS)
    # XLA's own files beside the programs (autotuning on GPUs) would be read unverified.
    jax.config.update("jax_persistent_cache_enable_xla_caches", "none")
    _verify_reads()


class VerifiedCache(LRUCache):
    """JAX's cache in a folder, with a hash of key and program in front of each program.

    The key is part of the hash, so a program under another's name is rejected as well.
    """

    def get(self, key: str) -> bytes | None:
        """Return the program, or None if there is none that is what was stored."""
        stored = super().get(key + _SUFFIX)
        if stored is None:
            return None
        program = stored[_HASH_BYTES:]
        if stored[:_HASH_BYTES] == _hash(key, program):
            return program
        path = self._file(key)
        _warn(f"{path}: damaged compiled program; it is deleted and compiled again")
        with contextlib.suppress(OSError):  # deleted by another process, or a read-only folder
            path.unlink()
        return None

    def put(self, key: str, value: bytes) -> None:
        """Store a program; another process reads all of it or nothing."""
        stored = _hash(key, value) + value
        if self.eviction_enabled:  # JAX then holds a lock and counts sizes
            super().put(key + _SUFFIX, stored)
            return
        path = self._file(key)
        part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
        try:
            part.write_bytes(stored)
            part.replace(path)
        except OSError:
            part.unlink(missing_ok=True)
            raise

    def _file(self, key: str) -> Path:
        return self._path / f"{key}{_SUFFIX}-cache"


def _warn(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def _hash(key: str, program: bytes) -> bytes:
    hasher = hashlib.sha256(key.encode() + b"\0")
    hasher.update(program)
    return hasher.digest()


def _verify_reads() -> None:
    """Make JAX use `VerifiedCache`; turn its cache off if it does not."""
    cache = None
    with contextlib.suppress(AttributeError, OSError):  # of another JAX, or a folder it cannot make
        compilation_cache.LRUCache = VerifiedCache  # pyright: ignore[reportPrivateImportUsage]
        compilation_cache.reset_cache()
        compilation_cache._initialize_cache()
        cache = compilation_cache._cache
    # JAX wraps a cache whose contents it shall compare with programs compiled anew.
    if not isinstance(getattr(cache, "_base_cache", cache), VerifiedCache):
        _warn("compiled programs are not kept: JAX cannot use a cache that is verified")
        jax.config.update("jax_compilation_cache_dir", None)


def _processor() -> str:
    """Return a short name for the instructions that this machine's processor has."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(errors="replace").splitlines() if info.exists() else []
    descriptions = [line for line in lines if line.startswith(("model name", "flags", "Features"))]
    of_one = sorted(set(descriptions)) or [os.uname().machine if hasattr(os, "uname") else ""]
    return hashlib.sha256("\n".join(of_one).encode()).hexdigest()[:8]


def _remove_unused(folder: Path) -> None:
    """Remove programs that were not read for a month, and what writers that died left."""
    for path in folder.iterdir():
        with contextlib.suppress(OSError):  # another process removes files too
            stat = path.stat()
            if time.time() - max(stat.st_atime, stat.st_mtime) > _UNUSED_DAYS * 86_400:
                path.unlink()
