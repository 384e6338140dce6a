"""A bucket of one's own, and commands that find it."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests.bucket.server import FakeBucket
from tests.conftest import ROOT


@pytest.fixture
def bucket() -> Iterator[FakeBucket]:
    with FakeBucket("bucket") as served:
        yield served


class Commands:
    """Runs commands of the repository that see a bucket where Google's would be.

    Attributes:
      folder: where they are typed.
    """

    def __init__(self, bucket: FakeBucket, cache: str):
        self.folder = ROOT
        self._environment = {
            **os.environ,
            **bucket.environment,
            "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
            "JAX_COMPILATION_CACHE_DIR": cache,
        }

    def start(self, *arguments: str) -> subprocess.Popen:
        """A command, not waited for."""
        return subprocess.Popen(
            [sys.executable, *map(str, arguments)], cwd=self.folder, env=self._environment,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """Output of a command, which has to end with `code`."""
        process = self.start(*arguments)
        output, _ = process.communicate(timeout=300)
        assert process.returncode == code, output
        return output

    def start_until(self, *arguments: str, after: str) -> tuple[subprocess.Popen, str]:
        """A command that has printed `after`, and its output so far."""
        process, output = self.start(*arguments), ""
        assert process.stdout is not None
        deadline = time.monotonic() + 200
        while after not in output and time.monotonic() < deadline:
            output += (line := process.stdout.readline())
            assert line, output
        return process, output


@pytest.fixture
def run_it(bucket, tmp_path_factory) -> Commands:
    # Programs are compiled once for all of these tests.
    root = tmp_path_factory.getbasetemp()
    return Commands(bucket, str(root / "compiled"))
