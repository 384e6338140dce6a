"""Paths that are taken; each that is refused is a row of `tests/errors/training.py`."""

from pathlib import Path

from utils.paths import local


def test_paths_are_left_as_they_are():
    for path in ("runs/demo", "/mnt/s3:/run", "runs/base=10,seed=1", "a:b/c", "C:/runs", ".."):
        assert local(path) == Path(path)
