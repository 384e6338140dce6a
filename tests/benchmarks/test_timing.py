"""The clock and the arithmetic of the benchmarks; none is run here."""

import importlib

import pytest

from benchmarks import timing
from benchmarks.__main__ import BENCHMARKS


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_listed_benchmark_can_be_started(name):
    assert callable(importlib.import_module(f"benchmarks.{name.replace('-', '_')}").main)


def test_functions_alternate_and_the_first_calls_do_not_count():
    """A clock that the functions move: 5 s for the first call of each, then 1 s and 2 s."""
    calls, now = [], 0.0

    def function(name, seconds):
        def call():
            nonlocal now
            now += 5.0 if name not in calls else seconds
            calls.append(name)

        return call

    functions = {"a": function("a", 1.0), "b": function("b", 2.0)}
    assert timing.alternate(functions, 2, lambda: now) == {"a": [1.0, 1.0], "b": [2.0, 2.0]}
    assert calls == ["a", "b"] * 3


def test_ratios_are_to_the_last_function(capsys):
    timing.compare({"ours": [0.010, 0.040, 0.030], "theirs": [0.020, 0.020, 0.060]})
    ours, theirs = capsys.readouterr().out.splitlines()
    # The fastest of each; the median of 1/2, 2 and 1/2.
    assert " ".join(ours.split()) == "ours 10 / 30 ms, ratio 0.50 / 0.50"
    assert " ".join(theirs.split()) == "theirs 20 / 20 ms, ratio 1.00 / 1.00"
