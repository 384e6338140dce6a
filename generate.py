"""Continue a text: `python generate.py RUN --prompt TEXT`, the same as `ropewalk generate`."""

from ropewalk.__main__ import run

if __name__ == "__main__":
    run("generate")
