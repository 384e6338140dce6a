"""Ratios, goals, and their files and tables."""

import json
import math

import pytest

from benchmarks.record import Record, Result


def result(**fields):
    return Result(**{"name": "a", "ratio": "b over c", "least": 1.0, "median": 1.0} | fields)


def test_least_is_of_the_fastest_runs_and_median_of_the_ratios():
    """The ratios of the rounds are 1/2, 2 and 1/2; the fastest runs take 10 and 20 s."""
    seconds = {"a": [10, 40, 30], "b": [20, 20, 60]}
    ratio = Result.from_seconds("a", "b over c", seconds, 3.0)
    assert (ratio.least, ratio.median) == (3 * 10 / 20, 3 * 0.5)
    assert ratio.measured == {"ms, a": 1e4, "ms, b": 2e4}


@pytest.mark.parametrize(
    ("median", "goal", "met"),
    [
        (0.59, dict(at_least=0.6), False),
        (0.6, dict(at_least=0.6), True),
        (1.31, dict(at_most=1.3), False),
        (1.3, dict(at_most=1.3), True),
        (0.0, dict(at_most=0.0), True),  # no leak at all
        (1e-9, dict(at_most=0.0), False),
        (math.nan, dict(at_most=1.0), False),
        (math.nan, dict(at_least=1.0), False),
        (1.0, {}, None),
    ],
)
def test_a_goal_applies_to_the_median(median, goal, met):
    assert result(median=median, least=1.0, **goal).met is met


def record_of(**fields):
    defaults = dict(
        command="cpu --only step", date="2026-01-02", commit="0123456789",
        device={"processor": "A CPU", "cores": 2}, versions={"python": "3.11.7", "jax": "0.10.2"},
        load=0.1, complete=True,
    )  # fmt: skip
    return Record(**defaults | fields)


def test_a_record_is_read_as_it_was_written(tmp_path):
    written = record_of(
        results=(result(at_most=0.5, measured={"ms": 12.5}), result(name="d")),
        notes=("torch is not installed",),
    )
    path = tmp_path / "folder" / "cpu-step.json"
    written.write(path)
    assert Record.read(path) == written
    assert [row["met"] for row in json.loads(path.read_text())["results"]] == [False, None]
    assert [file.name for file in path.parent.iterdir()] == ["cpu-step.json"]
