"""Numbers of one and of several seeds as text, and the legend of heads."""

import math
import re

import numpy as np
import pytest
from matplotlib.figure import Figure

from ropewalk.probes import all_probes
from ropewalk.probes.analyses.head_scores import HeadScores
from ropewalk.probes.probe import Number, draw_points, format_number
from ropewalk.probes.resample import with_interval


@pytest.mark.parametrize(
    ("seeds", "expected"),
    [
        ([Number(20.17, 19.8, 20.6)], "20.2 [19.8, 20.6]"),
        ([Number(math.inf, math.inf, math.inf)], "none"),
        ([Number(50.0, 40.0, math.inf)], "50 [40, ∞]"),
        ([Number(math.inf, 125.0, math.inf)], "> 125"),
        ([Number(math.inf, 0.0, math.inf)], "undetermined [0, ∞]"),
        ([Number(math.nan, 26.0, math.inf)], "undetermined [26, ∞]"),
        # Student: 22.5 plus or minus 12.706 standard errors of 0.5, and no number below 0.
        ([Number(22.0, 21.9, 22.1), Number(23.0, 22.9, 23.1)], "22.5 [16.1, 28.9]"),
        ([Number(2.0, 1.9, 2.1), Number(3.0, 2.9, 3.1)], "2.5 [0, 8.85]"),
        ([Number(0.4, largest=1), Number(0.6, largest=1)], "0.5 [0, 1]"),
        ([Number(20.0), Number(math.inf)], "20 / none"),
        ([Number(1000.0)], "1,000"),
    ],
)
def test_intervals_are_over_documents_of_one_seed_or_over_seeds(seeds, expected):
    assert format_number(seeds) == expected


def test_an_interval_contains_its_value():
    """Percentiles of resamples that never attain the first sample's 9."""
    assert with_interval(np.array([9.0, 1.0, 1.0, 3.0, 3.0])).tolist() == [9, 1, 9]


def test_the_highest_score_names_its_head_and_nan_is_lowest():
    score_LN = np.array([[math.nan, 1.0], [3.0, 2.0]])
    probe = HeadScores(random_LN=score_LN)
    assert probe.highest(np.stack([score_LN] * 3), 1) == Number(3, 3, 3, largest=1, head="1.0")


def test_a_cross_marks_what_has_neither_value_nor_interval():
    ax = Figure().subplots()
    nan = math.nan
    draw_points(ax, np.arange(3), np.array([[5, nan, nan], [4, 26, nan], [6, 125, nan]]), "black")
    assert [list(line.get_xdata()) for line in ax.lines if line.get_marker() == "x"] == [[2]]


@pytest.mark.parametrize("cls", all_probes().values(), ids=list(all_probes()))
def test_arrays_of_the_shapes_in_the_docstring_are_drawn(cls):
    sizes = dict(zip("3LNRMXGWCDQKHP", (3, 1, 4, 8, 127, 6, 6, 2, 4, 4, 99, 8, 16, 2), strict=True))
    arrays, random = {}, np.random.default_rng(0)
    for name in re.findall(r"\b[a-z][a-z_0-9]*_[3A-Z]+\b", cls.__doc__):
        shape = [sizes[letter] for letter in name.rpartition("_")[2]]
        is_sorted = len(shape) == 1 and "right" not in name
        arrays[name] = np.geomspace(1, 125, shape[0]) if is_sorted else random.random(shape)
    figure = cls.plot({"base=10": [cls(**arrays, trained_length=128, longest=125)]})
    figure.draw_without_rendering()
    assert figure.axes
