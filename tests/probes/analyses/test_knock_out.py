"""Masked heads of a synthetic model, in which one head answers and the others do nothing."""

import numpy as np
import pytest

from ropewalk.probes import Subject
from ropewalk.probes.analyses.knock_out import KnockOut
from tests.probes.helpers import copying_run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def result(tokenizer) -> KnockOut:
    run = copying_run(tokenizer, num_random_heads=2)
    return KnockOut.measure(Subject(run=run, documents=24))


def test_only_the_copying_head_matters(result):
    assert result.intact_loss_3[0] < 1e-2
    is_needed_N = np.array([False, False, True])
    np.testing.assert_array_equal(np.isnan(result.without_l50_3LN[0, 0]), is_needed_N)
    np.testing.assert_array_equal(result.without_loss_3LN[0, 0] > 1, is_needed_N)
    assert (result.without_loss_3LN[0, 0, :2] < 1e-2).all()


def test_the_copying_head_alone_answers_at_every_distance(result):
    assert result.right_X.min() == 1 and result.alone_LNX[0, 2].min() == 1
    assert result.window(0, 2) == [(result.low_X[0], result.high_X[-1])]
    assert result.window(0, 0) == result.window(0, 1) == []
    *_, model, single, several, none = result.numbers().values()
    assert [model.value, single.value, several.value, none.value] == [1, 1, 0, 0]


def test_heads_are_masked_by_their_retrieval_score(result):
    assert result.retrieval_LN.argmax() == 2
    assert result.masked_C.tolist() == [1, 2]
    assert np.isnan(result.by_score_l50_3C[0]).all() and (result.by_score_loss_3C[0] > 1).all()
    # Random orders mask it first or later; with more masked heads it stays masked.
    first_D, second_D = np.isnan(result.random_l50_3CD[0])
    assert len(first_D) == 4 and (second_D >= first_D).all()
    assert first_D.any() and not first_D.all()
