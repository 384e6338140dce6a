"""Write the figures and one self-contained HTML page of run directories.

    ropewalk report DIR... [--out FILE.html]

DIR is a run or a sweep directory. Beside the page, figures are saved as PNG and SVG, and numbers as
results.csv (columns: reporting/results.py). The page of one DIR is DIR/report.html. The page of
several has a folder of its own beside the first: report-A+B/report.html for A and B, and a digest
of their paths in its name if they lie in several folders. Runs that differ only in their seeds are
one member, in any DIR. Sweeps of the same bases at several trained lengths show effective context
against trained length.
"""

import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path

from ropewalk.experiment.run import find_runs
from ropewalk.utils.command_line import Parser, exit_with, typed_command
from ropewalk.utils.files import check_writable
from ropewalk.utils.messages import printable
from ropewalk.utils.paths import as_path

_LONGEST_NAME = 100  # characters of a folder's name


def main() -> None:
    """Parse the command line and write the page."""
    parser = Parser(description=__doc__)
    parser.add_argument("dirs", nargs="+", metavar="DIR", help="run or sweep directory")
    parser.add_argument("--out", metavar="FILE.html", help="path of the page (default: see above)")
    args = parser.parse_args()
    with parser.refusing(ValueError, OSError):
        paths = [as_path(path) for path in args.dirs]
        # A pattern like `runs/*` includes the folders of pages of several directories.
        dirs = [path for path in paths if not _is_page(path)] or paths
        find_runs(dirs)
        out = check_page(as_path(args.out) if args.out else _page_of(dirs))
        # Imported late: help and invalid arguments need neither matplotlib nor JAX.
        from ropewalk.reporting.writing import write

        for notice in write(dirs, out, typed_command()):
            print(printable(f"report.py: {notice}"), file=sys.stderr)
    print(out)


def _is_page(path: Path) -> bool:
    return path.name.startswith("report-") and (path / "report.html").exists()


def _page_of(dirs: Sequence[Path]) -> Path:
    """Return the page's path: in the directory, or in a folder beside the first of several."""
    unique = list(dict.fromkeys(path.resolve() for path in dirs))
    if len(unique) == 1:
        return dirs[0] / "report.html"
    names = [path.name for path in unique]
    name = "+".join(names)
    folders = {path.parent for path in unique}
    if len(folders) > 1 or "+" in "".join(names) or len(name) > _LONGEST_NAME:
        digest = hashlib.sha256("\n".join(map(str, unique)).encode()).hexdigest()[:8]
        name = f"{name[:_LONGEST_NAME]}-{digest}"
    return dirs[0].parent / f"report-{name}" / "report.html"


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


if __name__ == "__main__":
    exit_with(main, "no page was written, results are unchanged")
