"""Compiled programs kept on the disk, by JAX's own cache: the second start of a run is quick."""

import contextlib
import hashlib
import os
import time
from pathlib import Path

import jax

_UNUSED_DAYS = 30
_MIN_SECONDS = 0.2  # to compile: what takes less is compiled again


def keep_programs() -> None:
    """Has JAX keep what it compiles, for this process and later ones; before anything is compiled.

    In `~/.cache/ropewalk`, or XDG_CACHE_HOME, a folder for each kind of processor: programs for one
    may use instructions that another lacks. What was not read for a month goes. What the user said
    of JAX's cache (JAX_COMPILATION_CACHE_DIR) stays as it is; where nothing can be written, nothing
    is kept.
    """
    given = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    if given is not None:
        return
    cache = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    folder = Path(cache, "ropewalk", f"compiled-{_processor()}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _clean(folder)
    except (OSError, RuntimeError):  # RuntimeError: there is no home
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", _MIN_SECONDS)


def _processor() -> str:
    """A short name of what this machine's processor can do."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(errors="replace").splitlines() if info.exists() else []
    told = [line for line in lines if line.startswith(("model name", "flags", "Features"))]
    of_one = sorted(set(told)) or [os.uname().machine if hasattr(os, "uname") else ""]
    return hashlib.sha256("\n".join(of_one).encode()).hexdigest()[:8]


def _clean(folder: Path) -> None:
    """Removes programs long unused, and those whose writing was cut off.

    JAX writes in place, and never again what is there: half a program would be found, warned of and
    compiled anew at every start.
    """
    checked = folder / "checked"
    since = checked.stat().st_mtime if checked.exists() else 0.0
    checked.touch()
    for path in folder.glob("*-cache"):
        with contextlib.suppress(FileNotFoundError):  # another process cleans as well
            stat = path.stat()
            unused = time.time() - max(stat.st_atime, stat.st_mtime) > _UNUSED_DAYS * 86_400
            # The clock of a file may lag behind the one that `touch` asks.
            if unused or (stat.st_mtime > since - 5 and not _is_whole(path)):
                path.unlink()


def _is_whole(path: Path) -> bool:
    import zstandard  # what JAX packs programs with

    try:
        zstandard.ZstdDecompressor().decompress(path.read_bytes())
    except zstandard.ZstdError:
        return False
    return True
