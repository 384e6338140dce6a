"""Files that are whole or not there."""

import os
from pathlib import Path


def write_atomically(path: Path, content: str | bytes) -> None:
    """The whole file or nothing, even if the machine stops in between."""
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)
