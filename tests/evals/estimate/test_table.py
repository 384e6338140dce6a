"""A part of the table of docs/evaluation.md; `-s` prints it."""

import numpy as np
import pytest

from tests.evals.estimate import table


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fall, slope 3", "plateau .60, edge at 90", "floor .30"])
def test_clean_falls_are_covered_and_do_not_dip(name):
    row = table.line(table.CLEAN[name], 1, 40)
    print(name, row)
    assert row["covered"] >= 0.85  # .93 or more of many
    assert abs(row["bias"]) < 0.1
    assert row["dips"] <= 0.05


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["hole .10 at 28-33", "hole .40 at 28-35", "period 58, bottom .45"]
)
def test_holes_are_said(name):
    row = table.line(table.HOLES[name], 1, 40)
    print(name, row)
    assert row["dips"] >= 0.95
    assert row["covered"] >= 0.7


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ceiling .50", "ceiling .515"])
def test_ceilings_below_the_gate_do_not_pass(name):
    assert table.line(table.GATE[name], 1, 40)["learned"] <= 0.05


def test_the_crossing_of_a_curve_is_where_it_is_half_way():
    """(1 + cos x) / 2 is 1/2 + 1/128 at x = 1.555; the ceiling is read at 1 token, not at 0."""
    result = table.crossing(table.cosine(0.0))
    assert result == pytest.approx(58 * 1.555 / (2 * np.pi), rel=5e-3)
    assert table.crossing(table.hole(28, 33, 0.1)) == pytest.approx(28, abs=0.01)
    assert table.crossing(table.hole(28, 33, 0.6)) == np.inf
