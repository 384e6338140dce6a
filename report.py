"""Write the figures and one self-contained HTML page of run directories.

    python report.py DIR... [--out FILE.html]

DIR is a run or a sweep directory. Beside the page, figures are saved as PNG and SVG, and numbers as
results.csv (columns: reporting/results.py). The page of one DIR is DIR/report.html. The page of
several has a folder of its own beside the first: report-A+B/report.html for A and B. Runs that
differ only in their seeds are one member, in any DIR. Sweeps of the same bases at several trained
lengths show effective context against trained length.
"""

import ropewalk.utils.environment  # noqa: F401 - first: it checks that packages are installed

# isort: split
import shlex
import sys

from ropewalk.reporting.paths import check_page, find_dirs, page_of
from ropewalk.utils.command_line import Parser, exit_with
from ropewalk.utils.messages import printable
from ropewalk.utils.paths import as_path


def main() -> None:
    """Parse the command line and write the page."""
    parser = Parser(prog="report.py", description=__doc__)
    parser.add_argument("dirs", nargs="+", metavar="DIR", help="run or sweep directory")
    parser.add_argument("--out", metavar="FILE.html", help="path of the page (default: see above)")
    args = parser.parse_args()
    try:
        dirs = find_dirs(args.dirs)
        out = check_page(as_path(args.out) if args.out else page_of(dirs))
        # Imported late: help and invalid arguments need neither matplotlib nor JAX.
        from ropewalk.reporting.writing import write

        for notice in write(dirs, out, shlex.join(["python", "report.py", *sys.argv[1:]])):
            print(printable(f"report.py: {notice}"), file=sys.stderr)
    except (ValueError, OSError) as error:
        parser.refuse(error)
    print(out)


if __name__ == "__main__":
    exit_with(main, "no page was written, results are unchanged")
