"""Cheap parts of the tables of docs/evaluation.md; `-s` prints them."""

import pytest

from tests.evals.estimate import table


@pytest.mark.slow
@pytest.mark.parametrize("name", table.KINDS)
def test_intervals_cover_with_the_questions_that_are_asked(name):
    row = table.line(table.KINDS[name], 40, seed=1)
    print(name, row)
    assert min(row["covered"], row["mean covered"], row["worst covered"]) >= 0.85
    assert row["beyond"] <= 0.5


@pytest.mark.slow
def test_intervals_of_language_models_cover():
    """.93 or more of many."""
    shares = table.language_model(60, 100)
    print(shares)
    assert min(shares.values()) >= 0.87
