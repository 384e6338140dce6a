"""Train a model: `python train.py CONFIG --workdir DIR`, the same as `ropewalk train`."""

from ropewalk.__main__ import run

if __name__ == "__main__":
    run("train")
