"""Train a grid: `python sweep.py CONFIG --workdir DIR FIELD=A,B`, the same as `ropewalk sweep`."""

from ropewalk.__main__ import run

if __name__ == "__main__":
    run("sweep")
