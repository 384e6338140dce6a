"""A cheap part of the table of docs/evaluation.md; `-s` prints it."""

import pytest

from tests.evals.estimate import table


@pytest.mark.slow
@pytest.mark.parametrize("name", table.KINDS)
def test_intervals_cover_with_the_questions_that_are_asked(name):
    row = table.line(table.KINDS[name], 40, seed=1)
    print(name, row)
    assert row["covered"] >= 0.85  # .90 or more of many
    assert row["beyond"] <= 0.5


@pytest.mark.slow
def test_shelves_near_half_way_are_covered_from_end_to_end():
    """Half of the answers are right from 30 to 50 tokens: a fit sees a fall at either end."""
    for accuracy in (0.5, 0.55):
        curve = table.between(30, 50, accuracy, table.step(30))
        assert table.line(lambda _, curve=curve: curve, 40)["covered"] >= 0.85
