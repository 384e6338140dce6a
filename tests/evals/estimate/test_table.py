"""A cheap part of the table of docs/evaluation.md; `-s` prints it."""

import numpy as np
import pytest

from tests.evals.estimate import table


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "step at 19",
        "fall at 40, slope 2",
        "ceiling .95, fall at 40",
        "dip to .45 at 5-8",
        "dip to .45 at 28-33",
        "shelf .55 at 20-80",
        "shelf .6 at 12-90",
        "step at 110",
    ],
)
def test_intervals_cover_with_the_questions_that_are_asked(name):
    row = table.line(table.CURVES[name], 25)
    print(name, row)
    assert row["covered"] >= 0.8  # .90 or more of many
    assert row["beyond"] <= 0.12


@pytest.mark.slow
def test_models_that_recall_everything_are_beyond_all_distances():
    assert table.line(table.CURVES["no fall, .95"], 25)["beyond"] >= 0.95


def test_the_truth_of_a_curve_is_where_it_is_half_way():
    assert table.truth(table.step(19)) == pytest.approx(19)
    assert table.truth(table.between(28, 33, 0.1)) == pytest.approx(28, abs=0.01)
    assert table.truth(table.between(28, 33, 0.6)) == np.inf
