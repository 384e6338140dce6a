"""Damage to files, as a failing disk does it."""

import os
from pathlib import Path


def flip(path: Path, bit: int | None = None) -> None:
    """Change a bit, by default in the middle, from the end if negative; size and times stay."""
    times, content = path.stat(), bytearray(path.read_bytes())
    bit = 4 * len(content) if bit is None else bit
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
