"""Evaluate trained models: `python evaluate.py RUN`, the same as `ropewalk evaluate`."""

from ropewalk.__main__ import run

if __name__ == "__main__":
    run("evaluate")
