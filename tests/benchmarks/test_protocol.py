"""Ratios, and processes that wait; nothing is timed here."""

import os
import re
import time
import tomllib
from pathlib import Path

import pytest

from ropewalk.experiment.cost import Rate
from ropewalk.tpu.benchmarks import protocol
from ropewalk.tpu.benchmarks.protocol import Result, Setting


def test_a_ratio_is_of_the_fastest_runs_and_median_of_the_ratios():
    """The ratios of the rounds are 1/2, 2 and 1/2; the fastest runs take 10 and 20 s."""
    seconds = {"a": [10, 40, 30], "b": [20, 20, 60]}
    ratio = Result.from_seconds("a", "b over c", seconds, 3.0)
    assert (ratio.of_fastest, ratio.median) == (3 * 10 / 20, 3 * 0.5)
    assert ratio.measured == {"ms, a": 1e4, "ms, b": 2e4}


@pytest.mark.long
def test_a_dry_run_prints_a_row_and_a_rate_of_every_shape(capsys):
    protocol.run("step", Setting(rounds=1, dry=True))
    printed = capsys.readouterr().out
    assert "dry run: these numbers say nothing" in printed
    for name in ("demo", "10M", "30M"):
        assert re.search(rf"^\| {name} \| [\d.]+ \| \d of 32 \|.* none \| [\d.]+ \|", printed, re.M)
    rows = tomllib.loads(printed.partition("computed:\n")[2])["measured"]
    assert [Rate(**row).chip for row in rows] == ["cpu"] * 3
    assert protocol.platform.node() not in printed


def is_stopped(pid: int) -> bool:
    """True once the kernel has stopped the process, which takes a moment."""
    deadline = time.monotonic() + 20
    while "State:\tT" not in Path(f"/proc/{pid}/status").read_text():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


@pytest.mark.slow
def test_a_process_that_waits_is_stopped(tmp_path):
    """Threads of torch spin while they wait, and slow the process that is timed."""
    path = tmp_path / "pid"
    with protocol.start("tests.benchmarks.test_protocol:write_pid", str(path)) as call:
        waiting = int(path.read_text())
        assert is_stopped(waiting)
        assert 0 < call() < 60 and is_stopped(waiting)
        with pytest.raises(TypeError):
            call("an argument too many")
    assert not Path(f"/proc/{waiting}").exists()


def write_pid(path):
    Path(path).write_text(str(os.getpid()))
    return lambda: 0
