"""Gradients and truncated context of synthetic models, and the limit of windows."""

import jax
import numpy as np
import pytest

from ropewalk.probes import capture
from ropewalk.probes.analyses.receptive_field import ReceptiveField
from ropewalk.probes.inside import Capture
from ropewalk.probes.questions import Questions
from tests.probes.helpers import make_subject
from tests.probes.test_inside import random_model

pytestmark = pytest.mark.slow

LENGTH, ROWS = 40, 6
# The last question of a row is at 38 or 30.
QUESTIONS = Questions(
    row_Q=np.repeat(np.arange(ROWS), 2),
    query_Q=np.tile([12, 38, 9, 30], ROWS // 2),
    key_Q=np.tile([3, 20, 5, 2], ROWS // 2),
    is_value_BT=np.ones((ROWS, LENGTH), bool),
)


def random_capture(**model) -> Capture:
    """Return a capture of random rows by a random model."""
    run = random_model(model, "rope(base=10000)")
    shape = ROWS, LENGTH
    return capture(run, np.random.default_rng(2).integers(run.config.model.vocab_size, size=shape))


def test_gradients_end_at_the_limit_of_all_windows():
    """Two layers see four tokens back, and one more through smeared keys."""
    inside, farthest = random_capture(window=5, shift_keys=True), 10
    result = ReceptiveField.measure(make_subject(inside, QUESTIONS))
    assert result.limit == farthest
    assert result.distance_X[:12].tolist() == list(range(1, 13))  # a bin each
    gradient_12 = result.gradient_3X[0, :12]
    assert (gradient_12[:farthest] > 0).all()
    assert (gradient_12[farthest:] == 0).all() and (result.gradient_3X[0, 12:] == 0).all()
    assert result.within_3P.max() <= farthest
    kl_K = result.kl_3K[0]
    assert np.abs(kl_K[result.context_K > farthest]).max() < 1e-5
    assert (kl_K[result.context_K <= farthest] > 1e-3).all()


def test_a_truncated_context_is_a_shorter_document():
    """With key smearing, a leak of the token before the cut would show; every token matters."""
    run = random_model({"shift_keys": True}, "rope(base=10000)")
    inside = random_capture(shift_keys=True)
    result = ReceptiveField.measure(make_subject(inside, QUESTIONS))
    assert result.limit == np.inf and (result.gradient_3X[0] > 0).all()
    assert result.kl_3K[0, -1] == 0 and (result.kl_3K[0, :-1] > 0).all()
    kl = []
    for row, query in enumerate([38, 30] * (ROWS // 2)):
        tokens_1T = inside.tokens_BT[[row], : query + 1]
        full_V, cut_V = (
            jax.nn.log_softmax(run.logits(tokens)[0, -1])
            for tokens in (tokens_1T, tokens_1T[:, -8:])
        )
        kl.append((np.exp(full_V) * (full_V - cut_V)).sum())
    assert result.kl_3K[0, result.context_K == 8] == pytest.approx(np.mean(kl), rel=1e-3)
