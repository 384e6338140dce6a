"""Ratios, goals, and what is written of them. Nothing is timed here."""

import json
import math

import pytest

from benchmarks import record
from benchmarks.record import Result, Taken


def result(**more):
    return Result(**{"name": "a", "ratio": "b over c", "least": 1.0, "median": 1.0} | more)


def test_least_is_of_the_fastest_and_median_of_the_ratios():
    """Ratios by round are 1/2, 2 and 1/2; the fastest are 10 and 20."""
    found = Result.of_seconds("a", "b over c", [10, 40, 30], [20, 20, 60], times=3.0)
    assert (found.least, found.median) == (3 * 10 / 20, 3 * 0.5)


@pytest.mark.parametrize(
    ("median", "goal", "met"),
    [
        (0.59, dict(at_least=0.6), False),
        (0.6, dict(at_least=0.6), True),
        (1.31, dict(at_most=1.3), False),
        (1.3, dict(at_most=1.3), True),
        (0.0, dict(at_most=0.0), True),  # exactly nothing leaks
        (1e-9, dict(at_most=0.0), False),
        (math.nan, dict(at_most=1.0), False),
        (math.nan, dict(at_least=1.0), False),
        (1.0, {}, None),
    ],
)
def test_a_goal_is_held_against_the_median(median, goal, met):
    assert result(median=median, least=1.0, **goal).met is met


def taken(**more):
    fields = dict(
        command="cpu --only step",
        date="2026-01-02",
        commit="0123456789",
        device={"processor": "A CPU", "cores": 2},
        versions={"python": "3.11.7", "jax": "0.10.2"},
        load=0.1,
        complete=True,
    )
    return Taken(**fields | more)


def test_what_is_written_is_read_again_with_its_verdicts(tmp_path):
    written = taken(
        results=(result(at_most=0.5, measured={"ms": 12.5}), result(name="d")),
        notes=("torch is not installed",),
    )
    path = tmp_path / "made" / "cpu-step.json"
    written.write(path)
    assert Taken.read(path) == written
    assert [one["met"] for one in json.loads(path.read_text())["results"]] == [False, None]
    assert [file.name for file in path.parent.iterdir()] == ["cpu-step.json"]


def test_what_could_not_be_computed_is_no_number_and_misses_its_goal(tmp_path):
    path = tmp_path / "gpu-conformance.json"
    taken(results=(result(least=math.nan, median=math.nan, at_most=2.0),)).write(path)
    assert "NaN" not in path.read_text()
    (read,) = Taken.read(path).results
    assert math.isnan(read.least) and math.isnan(read.median) and read.met is False


def test_markdown_says_where_what_and_whether():
    made = record.markdown(
        [
            taken(results=(result(least=0.612, median=0.6, at_least=0.5),), seconds=12.4),
            taken(
                command="cpu --only peer",
                load=1.5,
                results=(result(name="30M", median=2, at_most=1, measured={"tokens/s": 12345.6}),),
                notes=("said",),
            ),
        ]
    )
    first, *lines = made.splitlines()
    assert first == (
        "A CPU, 2 cores. python 3.11.7, jax 0.10.2. 2026-01-02, commit 0123456789; other jobs at "
        "the start: 1.5 at most."
    )
    assert "`python -m benchmarks cpu --only step` (12 s)" in lines
    assert "| a | 0.612 / 0.6 | b over c | at least 0.5: met |  |" in lines
    assert "| 30M | 1 / 2 | b over c | at most 1: **missed** | 12,346 tokens/s |" in lines
    assert lines[-1] == "- said"


def test_a_dry_run_says_so_in_its_table():
    assert "**no figure**" in record.markdown([taken(dry_run="no figure")])
