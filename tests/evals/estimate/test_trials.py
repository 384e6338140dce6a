"""Bins of distance against numbers worked out by hand, and counts of rows made by hand."""

import numpy as np
import pytest

from ropewalk.evals.estimate import bins
from ropewalk.evals.estimate.trials import Trials


def test_fine_bins_are_eighths_of_an_octave_and_begin_at_powers_of_two():
    distances = np.array([0, 1, 2, 4, 8, 1024, 11, 12])
    # 8 log2 11 = 27.7 and 8 log2 12 = 28.7; 0 counts as 1.
    np.testing.assert_array_equal(bins.fine_bin_number(distances), [0, 0, 8, 16, 24, 80, 27, 28])


def test_bins_are_half_octaves():
    starts = [1, 2, 2, 3, 4, 6, 8, 12, 16, 23, 32]
    assert [bins.bin_start(number) for number in range(11)] == starts
    assert bins.BIN_STARTS[:10].tolist() == [1, *starts[2:]]
    # Bins 1 and 2 both start at 2, which lies in bin 2: bin 1 holds no whole number of tokens.
    assert bins.bin_number(np.array(starts)).tolist() == [0, 2, 2, *range(3, 11)]
    assert bins.bin_number(np.array([5, 7, 11, 15, 22, 31])).tolist() == [4, 5, 6, 7, 8, 9]


@pytest.fixture
def trials():
    """Two seeds, two documents, with questions at 2, 4 (asked twice by document 7) and 5 tokens."""
    columns = {"document": [3, 7, 7, 7] * 2, "distance": [2, 4, 4, 5] * 2, "chance": [0.25] * 8}
    columns |= {"seed": [0] * 4 + [1] * 4, "exact_match": [True, True, False, True] + [False] * 4}
    return Trials.from_rows({name: np.array(column) for name, column in columns.items()})


def test_questions_are_counted_by_seed_document_and_fine_bin(trials):
    assert trials.questions.tolist() == 2 * [[[1, 0, 0], [0, 2, 1]]]
    assert trials.right.tolist() == [[[1, 0, 0], [0, 1, 1]], [[0, 0, 0], [0, 0, 0]]]
    assert trials.x == pytest.approx([1, 2, np.log2(5)])
    assert (trials.low.tolist(), trials.high.tolist()) == ([2, 4, 5], [2, 4, 5])
    assert trials.seeds.tolist() == [0, 1]
    assert trials.chance == 0.25


def test_neighboring_bins_are_joined(trials):
    joined = trials.joined(np.array([0, 1, 1]))
    assert joined.questions.tolist() == 2 * [[[1, 0], [0, 3]]]
    assert (joined.low.tolist(), joined.high.tolist()) == ([2, 4], [2, 5])
    # Of the questions: two at 4 tokens and one at 5.
    assert joined.x == pytest.approx([1, (2 * 2 + np.log2(5)) / 3])


@pytest.mark.parametrize(("minimum", "counts"), [(1, [1, 2, 1]), (2, [4]), (9, [4])])
def test_bins_are_joined_until_each_has_enough_trials(trials, minimum, counts):
    """From the short side; what is left over joins the last."""
    assert trials.with_min_trials(minimum).questions.sum((0, 1)).tolist() == [2 * n for n in counts]


def test_the_mean_accuracy_counts_distances(trials):
    """2 stands for 3 as well, which was not asked: (2 x 1 + 1/2 + 1) / 4."""
    assert trials.of_seed(0)[0].summed().mean_accuracy() == pytest.approx(3.5 / 4)
    # Document 3 asked at 2 tokens alone.
    assert trials.mean_accuracy().tolist() == [[1, pytest.approx(1.5 / 2)], [0, 0]]
