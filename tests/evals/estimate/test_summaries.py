"""Literals worked out by hand."""

import numpy as np
import pytest

from ropewalk.evals.estimate import summaries
from tests.evals.helpers import rows


def test_a_share_has_wilsons_interval_over_documents_not_over_answers():
    """3 of 4 documents, each all right or all wrong; Wilson's ends are roots of a quadratic."""
    right = np.repeat([True, True, False, True], 10)
    result = rows(document=np.repeat([3, 5, 7, 9], 10), first_token_correct=right)
    mean, low, high = summaries.share(result)
    # The variance of the ratio over documents is 4/3 of that of 4 trials: 3 effective trials.
    z = 3.1824463  # Student's, 3 degrees of freedom
    ends = np.roots([1 + z**2 / 3, -(2 * 0.75 + z**2 / 3), 0.75**2])
    assert (mean, low, high) == pytest.approx((0.75, *sorted(ends)))


@pytest.mark.parametrize("documents", [1, 10])
def test_a_share_of_answers_that_are_all_wrong_has_an_interval(documents):
    """From 0 to z^2 / (n + z^2): one document with ten answers is one trial."""
    numbers = np.repeat(range(documents), 10)
    result = rows(document=numbers, first_token_correct=0 * numbers)
    z2, trials = {1: (1.959964**2, 1), 10: (2.2621572**2, 100)}[documents]
    assert summaries.share(result) == pytest.approx((0, 0, z2 / (trials + z2)))


def test_a_paired_difference():
    columns = {"document": [0, 0, 1, 1], "query": [0, 1, 0, 1], "num_tokens": [3, 1, 3, 1]}
    first, second = rows(**columns, nll=[5, 9, 1, 2]), rows(**columns, nll=[4, 7, 1, 1])
    # By document 5 and 1 nats over 4 tokens each: 1.25 and .25, mean .75, sd .7071, error .5.
    assert summaries.difference(first, second) == pytest.approx((0.75, 0.5, 2))
    # By answer, 3, 2, 0, 1 nats over 3, 1, 3, 1 tokens: less .75 a token .75, 1.25, -2.25, .25.
    error = (4 / 3 * (0.5625 + 1.5625 + 5.0625 + 0.0625)) ** 0.5 / 8
    by_answer = summaries.difference(first, second, unit=("document", "query"))
    assert by_answer == pytest.approx((0.75, error, 4))


def test_members_are_held_against_the_best_by_the_texts_they_share():
    document, query = np.divmod(np.arange(8), 2)
    best = rows(document=document, query=query, num_tokens=[3, 1] * 4, nll=np.arange(8.0))
    # By document 1, 1, 1 and 5 nats over 4 tokens: mean .5, sd .5, error .25.
    worse = best | {"nll": best["nll"] + [0, 1, 0, 1, 0, 1, 1, 2]}
    other = worse | {"num_bytes": np.arange(8)}
    fewer = {name: column[:6] for name, column in worse.items()} | {"nll": np.full(6, 99.0)}
    result = summaries.above_best([worse, best, other, fewer])
    assert result[0] == pytest.approx((0.5, 0.25, 4))
    assert result[0].half_width == pytest.approx(3.182446 * 0.25)  # Student's t, 3 degrees
    # Two seeds whose mean is that of `worse`, and a model without numbers.
    parts = [worse | {"nll": worse["nll"] + shift} for shift in (-1, 1)]
    seeds = {name: np.append(*(part[name] for part in parts)) for name in worse}
    nothing = worse | {"nll": np.full(8, np.nan)}
    assert summaries.above_best([nothing, seeds, best])[1] == pytest.approx((0.5, 0.25, 4))
    assert result[1] == (0, 0, 4)
    assert np.isnan([result[2].mean, result[3].mean]).all()
