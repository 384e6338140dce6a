"""Write the page of runs: `python report.py DIR`, the same as `ropewalk report`."""

from ropewalk.__main__ import run

if __name__ == "__main__":
    run("report")
