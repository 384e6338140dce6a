"""Where pages lie. Apart from what writes them, which takes seconds to import."""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from settings.places import in_bucket, place

_LONGEST_NAME = 100  # characters of a folder's name


def page_of(dirs: Sequence[Path]) -> Path:
    """Where the page of these directories goes: of several, into a folder that only they share."""
    in_buckets = [path for path in dirs if in_bucket(path)]
    if in_buckets and len({path.parts[:3] if in_bucket(path) else "" for path in dirs}) > 1:
        raise ValueError("the directories lie on different disks; give --out FILE.html")
    if in_buckets:
        whole = list(dict.fromkeys(dirs))
    else:
        whole = list(dict.fromkeys(Path(os.path.abspath(path)) for path in dirs))
    if len(whole) == 1:
        return dirs[0] / "report.html"
    parent = place(os.path.commonpath([path.parent for path in whole]))
    names = ["-".join(path.relative_to(parent).parts) for path in whole]
    name = "+".join(names)
    if len(name) > _LONGEST_NAME:
        digest = hashlib.sha256(name.encode()).hexdigest()[:8]
        name = f"{names[0]}+{len(names) - 1}-{digest}"
    if not in_buckets and not any(path.is_absolute() for path in dirs):
        parent = Path(os.path.relpath(parent))
    return parent / f"report-{name}" / "report.html"


def is_page(path: Path) -> bool:
    """Whether a folder is that of a page of several directories."""
    return path.name.startswith("report-") and (path / "report.html").exists()
