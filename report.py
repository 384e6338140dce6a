"""Run directories -> the figures and one self-contained HTML page.

    python report.py DIR... [--out FILE.html]

DIR is a run or a sweep directory. Figures are written beside the page, as PNG and SVG, and the
numbers to results.csv (its columns: reporting/results.py). What has not been measured yet is said
on the page, with the command that does it. Of one DIR the page is DIR/report.html. Of several it
has a folder of its own beside them, report-A+B/report.html of A and B, so that it replaces the page
of none. Runs that differ in their seed only are one member, whichever DIR they are in. Sweeps of
the same bases at several trained lengths, given together, show effective context against trained
length.
"""

import argparse
import shlex
import sys

from experiment.run import find_runs
from reporting.paths import is_page, page_of
from settings.commands import Parser
from settings.places import place


def main() -> None:
    """Parses the command line and writes the page."""
    parser = Parser(
        prog="report.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("dirs", nargs="+", metavar="DIR", help="run or sweep directory")
    parser.add_argument("--out", metavar="FILE.html", help="the page (default: above)")
    args = parser.parse_args()
    try:
        given = [place(path) for path in args.dirs]
        # A pattern like runs/* names the pages of several directories too.
        dirs = [path for path in given if not is_page(path)] or given
        out = place(args.out) if args.out else page_of(dirs)
        find_runs(dirs)
        # After parsing: help, and a slip of the hand, need none of matplotlib and JAX.
        from reporting.writing import write

        for notice in write(dirs, out, shlex.join(["python", *sys.argv])):
            print(f"report.py: {notice}", file=sys.stderr)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    print(out)


if __name__ == "__main__":
    sys.exit(main())
