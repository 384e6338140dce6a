"""A bucket of one's own, and commands that find it."""

import time
from collections.abc import Iterator

import pytest

from tests.bucket.server import FakeBucket
from tests.training.helpers import Processes


@pytest.fixture
def bucket() -> Iterator[FakeBucket]:
    with FakeBucket("bucket") as served:
        yield served


@pytest.fixture
def run_it(bucket, run_script):
    """Runs a command that sees a bucket where Google's would be; returns its standard output."""
    return lambda *arguments, **options: (
        run_script(*arguments, **bucket.environment, **options).stdout
    )


@pytest.fixture
def start(bucket, environment, tmp_path):
    """Starts such a command, and waits until it has printed `after`."""

    def start(*arguments: str, after: str = "") -> Processes:
        started = Processes(tmp_path / "logs", 1, environment | bucket.environment, *arguments)
        while after not in started.said()[0]:
            assert started.running[0].poll() is None, started.said()
            time.sleep(0.01)
        return started

    return start
