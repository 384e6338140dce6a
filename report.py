"""Write the page of run directories: `python report.py DIR... [--out FILE.html]`; see --help."""

from ropewalk.reporting.command import exit_with, main

if __name__ == "__main__":
    exit_with(main, "no page was written, results are unchanged")
