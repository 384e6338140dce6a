"""Ratios and goals, where results go, and processes that wait; nothing is timed here."""

import importlib
import json
import math
import os
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks import protocol
from benchmarks.protocol import Result, Setting


@pytest.mark.parametrize("name", command.BENCHMARKS)
def test_every_benchmark_has_a_module(name):
    assert callable(importlib.import_module(f"benchmarks.{name}").measure)


def test_least_is_of_the_fastest_runs_and_median_of_the_ratios():
    """The ratios of the rounds are 1/2, 2 and 1/2; the fastest runs take 10 and 20 s."""
    seconds = {"a": [10, 40, 30], "b": [20, 20, 60]}
    ratio = Result.from_seconds("a", "b over c", seconds, 3.0)
    assert (ratio.least, ratio.median) == (3 * 10 / 20, 3 * 0.5)
    assert ratio.measured == {"ms, a": 1e4, "ms, b": 2e4}


@pytest.mark.parametrize(
    ("median", "goal", "text"),
    [
        (0.59, dict(at_least=0.6), "at least 0.6: missed"),
        (0.6, dict(at_least=0.6), "at least 0.6: met"),
        (1.31, dict(at_most=1.3), "at most 1.3: missed"),
        (0.0, dict(at_most=0.0), "at most 0: met"),
        (math.nan, dict(at_most=1.0), "at most 1: missed"),
        (1.0, {}, ""),
    ],
)
def test_a_goal_applies_to_the_median(median, goal, text):
    assert Result(name="a", ratio="b over c", least=1.0, median=median, **goal).goal == text


def test_results_go_where_git_ignores_them_and_survive_an_interruption(monkeypatch, tmp_path):
    def measure(setting):
        yield "a note"
        yield Result(name="a", ratio="b over c", least=1, median=math.nan, at_least=1.5)
        raise MemoryError("in the middle")

    monkeypatch.setitem(sys.modules, "benchmarks.step", types.SimpleNamespace(measure=measure))
    default = Setting().path("step")
    done = subprocess.run(["git", "check-ignore", "-q", str(default)], cwd=protocol.ROOT)
    assert done.returncode == 0
    setting = Setting("gpu", dry=True, folder=tmp_path)
    with pytest.raises(MemoryError):
        protocol.run("step", setting)
    text = setting.path("step").read_text()
    record = json.loads(text)
    assert record["notes"] == ["a note"] and record["dry run"]
    (result,) = record["results"]
    assert result["median"] is None and result["goal"] == "at least 1.5: missed"
    assert protocol.platform.node() not in text and str(protocol.ROOT) not in text


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
