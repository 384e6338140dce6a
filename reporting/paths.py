"""Paths of report pages; a separate module, because `reporting.writing` imports slowly."""

from collections.abc import Sequence
from pathlib import Path

from ropewalk.experiment.run import find_runs
from ropewalk.utils.files import check_writable
from ropewalk.utils.paths import as_path

_LONGEST_NAME = 100  # characters of a folder's name


def page_of(dirs: Sequence[Path]) -> Path:
    """Return the page's path: in the directory, or in a folder beside the first of several."""
    unique = list({path.resolve(): path for path in dirs}.values())
    if len(unique) == 1:
        return dirs[0] / "report.html"
    name = "+".join(path.resolve().name for path in unique)
    return unique[0].parent / f"report-{name[:_LONGEST_NAME]}" / "report.html"


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
