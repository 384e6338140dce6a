"""Heads masked in a model set by hand, of which one head answers and the others do nothing."""

import numpy as np
import pytest

from probes import Subject
from probes.asked.knock_out import KnockOut, _bins, knock_out
from tests.probes.helpers import copier

pytestmark = pytest.mark.usefixtures("unoptimized")


@pytest.fixture(scope="module")
def found(tokenizer_file) -> KnockOut:
    return knock_out(Subject(run=copier(tokenizer_file, others=2), documents=24), draws=4)


def test_only_the_copying_head_matters(found):
    assert found.own_loss_3[0] < 1e-2
    is_needed_N = np.array([False, False, True])
    np.testing.assert_array_equal(np.isnan(found.without_l50_3LN[0, 0]), is_needed_N)
    np.testing.assert_array_equal(found.without_loss_3LN[0, 0] > 1, is_needed_N)
    assert (found.without_loss_3LN[0, 0, :2] < 1e-2).all()


def test_it_alone_answers_and_does_so_at_every_distance(found):
    assert found.right_X.min() == 1 and found.alone_LNX[0, 2].min() == 1
    assert found.window(0, 2) == [(found.low_X[0], found.high_X[-1])]
    assert found.window(0, 0) == found.window(0, 1) == []
    *_, model, one, several, none = found.numbers().values()
    assert [model.value, one.value, several.value, none.value] == [1, 1, 0, 0]


def test_heads_are_masked_by_their_retrieval_score(found):
    assert found.retrieval_LN.argmax() == 2
    assert found.masked_C.tolist() == [1, 2]
    assert np.isnan(found.by_score_l50_3C[0]).all() and (found.by_score_loss_3C[0] > 1).all()
    # In random orders it comes first, or later: what is lost stays lost.
    first_D, second_D = np.isnan(found.random_l50_CD)
    assert len(first_D) == 4 and (second_D >= first_D).all()
    assert first_D.any() and not first_D.all()


def test_bins_have_enough_questions_and_all_of_them():
    distance_Q = np.random.default_rng(0).permutation(np.repeat([1, 2, 3, 9, 10, 60], 20))
    bins_Q, low_X, high_X = _bins(distance_Q)
    assert list(zip(low_X, high_X, strict=True)) == [(1, 2), (3, 9), (10, 60)]
    np.testing.assert_array_equal(bins_Q, np.digitize(distance_Q, [3, 10]))
