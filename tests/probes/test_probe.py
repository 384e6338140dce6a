"""Numbers of one and of several seeds as text, and the legend of heads."""

import math

import numpy as np
import pytest
from matplotlib.figure import Figure

from ropewalk.probes.probe import Number, draw_points, format_number


@pytest.mark.parametrize(
    ("seeds", "expected"),
    [
        ([Number(20.17, 19.8, 20.6)], "20.2 [19.8, 20.6]"),
        ([Number(0.5)], "0.5"),
        ([Number(math.inf, math.inf, math.inf)], "none"),
        ([Number(50.0, 40.0, math.inf)], "50 [40, ∞]"),
        ([Number(math.inf, 125.0, math.inf)], "> 125"),
        ([Number(math.nan, 26.0, math.inf)], "undetermined [26, ∞]"),
        # Student: 2.5 plus or minus 12.706 standard errors of 0.5.
        ([Number(2.0, 1.9, 2.1), Number(3.0, 2.9, 3.1)], "2.5 [-3.85, 8.85]"),
        ([Number(20.0), Number(math.inf)], "20 / none"),
        ([Number(1000.0)], "1,000"),
    ],
)
def test_intervals_are_over_documents_of_one_seed_or_over_seeds(seeds, expected):
    assert format_number(seeds) == expected


def test_a_cross_marks_what_has_neither_value_nor_interval():
    ax = Figure().subplots()
    nan = math.nan
    draw_points(ax, np.arange(3), np.array([[5, nan, nan], [4, 26, nan], [6, 125, nan]]), "black")
    assert [list(line.get_xdata()) for line in ax.lines if line.get_marker() == "x"] == [[2]]
