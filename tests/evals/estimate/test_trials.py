"""Counts of rows made by hand."""

import numpy as np
import pytest

from evals.estimate.trials import Trials


@pytest.fixture
def trials():
    """Two seeds, two documents, with questions at 2, 4 (asked twice by document 7) and 5 tokens."""
    columns = {
        "document": [3, 7, 7, 7] * 2,
        "distance": [2, 4, 4, 5] * 2,
        "seed": [0] * 4 + [1] * 4,
        "exact_match": [True, True, False, True] + [False] * 4,
        "chance": [0.25] * 8,
    }
    return Trials.of({name: np.array(column) for name, column in columns.items()})


def test_questions_are_counted_by_seed_document_and_fine_bin(trials):
    """Fine bins 8 (2), 16 (4) and 18 (5 tokens); bins 2 (2) and 4 (4 and 5 tokens)."""
    assert trials.asked.tolist() == 2 * [[[1, 0, 0], [0, 2, 1]]]
    assert trials.right.tolist() == [[[1, 0, 0], [0, 1, 1]], [[0, 0, 0], [0, 0, 0]]]
    assert trials.x == pytest.approx([1, 2, np.log2(5)])
    assert trials.bins.tolist() == [2, 4]
    assert trials.in_bin.tolist() == [[1, 0], [0, 1], [0, 1]]
    assert trials.chance == 0.25


def test_seeds_documents_and_bins_are_chosen_and_summed(trials):
    first, second = trials.by_seed()
    assert first.right.tolist() == [[1, 0, 0], [0, 1, 1]] and second.right.sum() == 0
    assert trials.summed().asked.tolist() == [[2, 0, 0], [0, 4, 2]]
    weighted = first.weighted(np.array([[1, 1], [0, 2], [2, 0]]))
    assert weighted.asked.tolist() == [[1, 2, 1], [0, 4, 2], [2, 0, 0]]
    assert [each.tolist() for each in weighted.by_bin()] == [
        [[1, 3], [0, 6], [2, 0]],
        [[1, 2], [0, 4], [2, 0]],
    ]
    near = weighted.within(np.array([[True, False], [True, True], [False, True]]))
    assert near.asked.tolist() == [[1, 0, 0], [0, 4, 2], [0, 0, 0]]
