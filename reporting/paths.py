"""Where pages lie. Apart from what writes them, which takes seconds to import."""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

_LONGEST_NAME = 100  # characters of a folder's name


def page_of(dirs: Sequence[Path]) -> Path:
    """Where the page of these directories goes: of several, into a folder that only they share."""
    whole = list(dict.fromkeys(Path(os.path.abspath(path)) for path in dirs))
    if len(whole) == 1:
        return dirs[0] / "report.html"
    parent = Path(os.path.commonpath([path.parent for path in whole]))
    names = ["-".join(path.relative_to(parent).parts) for path in whole]
    name = "+".join(names)
    if len(name) > _LONGEST_NAME:
        digest = hashlib.sha256(name.encode()).hexdigest()[:8]
        name = f"{names[0]}+{len(names) - 1}-{digest}"
    if not any(path.is_absolute() for path in dirs):
        parent = Path(os.path.relpath(parent))
    return parent / f"report-{name}" / "report.html"


def is_page(path: Path) -> bool:
    """Whether a folder is that of a page of several directories."""
    return path.name.startswith("report-") and (path / "report.html").exists()
