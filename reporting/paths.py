"""Paths of report pages; a separate module, because `reporting.writing` imports slowly."""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from experiment.run import find_runs
from utils.files import check_writable
from utils.paths import as_path, in_bucket

_LONGEST_NAME = 100  # characters of a folder's name


def page_of(dirs: Sequence[Path]) -> Path:
    """Return the page's path: in the directory, or in a folder beside several directories."""
    in_buckets = [path for path in dirs if in_bucket(path)]
    if in_buckets and len({path.parts[:3] if in_bucket(path) else "" for path in dirs}) > 1:
        raise ValueError("the directories lie on different disks; give --out FILE.html")
    absolute = dirs if in_buckets else [Path(os.path.abspath(path)) for path in dirs]
    unique = list(dict.fromkeys(absolute))
    if len(unique) == 1:
        return dirs[0] / "report.html"
    parent = as_path(os.path.commonpath([path.parent for path in unique]))
    names = ["-".join(path.relative_to(parent).parts) for path in unique]
    name = "+".join(names)
    if len(name) > _LONGEST_NAME:
        digest = hashlib.sha256(name.encode()).hexdigest()[:8]
        name = f"{names[0]}+{len(names) - 1}-{digest}"
    if not in_buckets and not any(path.is_absolute() for path in dirs):
        parent = Path(os.path.relpath(parent))
    return parent / f"report-{name}" / "report.html"


def check_page(out: Path) -> Path:
    """Return the path of a page.

    Raises:
      ValueError: if it is a folder or no .html file, or its folder cannot be written to.
    """
    if out.is_dir():
        raise ValueError(f"--out {out} is a folder; write --out {out / 'report.html'}")
    if out.suffix not in (".html", ".htm"):
        raise ValueError(
            f"--out {out} is no name of a page; write --out {out.with_suffix('.html')}"
        )
    check_writable(out.parent, "put the page elsewhere: --out FILE.html")
    return out


def find_dirs(dirs: Sequence[str]) -> list[Path]:
    """Return run and sweep directories, without the folders of pages of several directories.

    A pattern like `runs/*` includes those.

    Raises:
      ValueError: if a directory is neither a run nor a sweep.
    """
    paths = [as_path(path) for path in dirs]
    runs = [path for path in paths if not _is_page(path)] or paths
    find_runs(runs)
    return runs


def _is_page(path: Path) -> bool:
    return path.name.startswith("report-") and (path / "report.html").exists()
