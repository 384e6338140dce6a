"""Numbers of one and of several seeds as text, and the legend of heads."""

import math

import pytest

from probes.figures import head_handles
from probes.probe import Number, format_number


@pytest.mark.parametrize(
    ("seeds", "expected"),
    [
        ([Number(20.17, 19.8, 20.6)], "20.2 [19.8, 20.6]"),
        ([Number(0.5)], "0.5"),
        ([Number(math.inf, math.inf, math.inf)], "none"),
        ([Number(50.0, 40.0, math.inf)], "50 [40, ∞]"),
        # Student: 2.5 plus or minus 12.706 standard errors of 0.5.
        ([Number(2.0, 1.9, 2.1), Number(3.0, 2.9, 3.1)], "2.5 [-3.85, 8.85]"),
        ([Number(20.0), Number(math.inf)], "20 / none"),
        ([Number(1000.0)], "1,000"),
    ],
)
def test_intervals_are_over_documents_of_one_seed_or_over_seeds(seeds, expected):
    assert format_number(seeds) == expected


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        ([(1, 2)], ["head 0", "head 1"]),
        ([(1, 1), (2, 2)], ["head 0.0", "head 0.1", "head 1.0", "head 1.1"]),
        ([(3, 3)], []),  # nine heads, eight colors
    ],
)
def test_heads_are_named_unless_there_are_more_than_colors(shapes, expected):
    assert [handle.get_label() for handle in head_handles(shapes)] == expected
