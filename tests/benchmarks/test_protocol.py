"""Ratios, and processes that wait; nothing is timed here."""

import re
import tomllib

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
