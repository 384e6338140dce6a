"""Files that are whole or not there."""

import os
from pathlib import Path


def write_atomically(path: Path, text: str) -> None:
    """The whole file or nothing, even if the machine stops in between."""
    part = path.with_name(path.name + ".part")
    with part.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)
