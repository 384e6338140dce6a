"""Numbers of one and of several seeds as text, and the legend of heads."""

import math

import pytest

from ropewalk.probes.probe import Number, format_number


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
