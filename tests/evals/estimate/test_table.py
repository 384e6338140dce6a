"""A cheap part of the table of docs/evaluation.md; `-s` prints it."""

import pytest

from tests.evals.estimate import table


@pytest.mark.slow
@pytest.mark.parametrize("name", table.KINDS)
def test_intervals_cover_with_the_questions_that_are_asked(name):
    row = table.line(table.KINDS[name], 40, seed=1)
    print(name, row)
    assert row["covered"] >= 0.85  # .90 or more of many
    assert row["mean covered"] >= 0.85  # .93 or more of many
    assert row["beyond"] <= 0.5
