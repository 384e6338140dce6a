"""Heads of known scores: equal weights in closed form, and heads with a single function."""

import math

import numpy as np
import pytest

from ropewalk.probes.analyses.head_scores import HeadScores, head_scores, retrieval
from ropewalk.probes.questions import Questions
from tests.probes.helpers import make_capture

T, N = 64, 50
LARGE = 100.0  # a logit whose weight is 1
# One question a row, and its answer.
QUESTIONS = Questions(
    np.arange(3), np.array([9, 20, 30]), np.array([4, 18, 2]), np.ones((3, T), bool)
)
ALL_RIGHT = np.ones(3, bool)


def one_hot(x_BT: np.ndarray, size: int) -> np.ndarray:
    """Return pairs `[B, T, 1, size]` whose products are LARGE for equal numbers, else 0."""
    return math.sqrt(LARGE * math.sqrt(2 * size)) * np.eye(size)[x_BT][:, :, None]


def attending_back(distance_BT: np.ndarray | int):
    """Return a head that attends to the key at a distance, or to the first key."""
    indices_BT = np.tile(np.arange(T), (3, 1))
    keys_BT = np.maximum(indices_BT - distance_BT, 0)
    return make_capture(one_hot(keys_BT, T), one_hot(indices_BT, T), "nope")


def uniform_heads(rows: int, length: int, *, heads: int = 1, window: int | None = None):
    """Return heads whose logits are all 0."""
    return make_capture(*np.zeros((2, rows, length, heads, 4)), "nope", window)


def score(captured, repeated=None) -> HeadScores:
    return head_scores(
        captured, QUESTIONS, ALL_RIGHT, repeated or uniform_heads(1, 2 * N), captured
    )


@pytest.mark.parametrize("window", [None, 21, 4])
def test_equal_weights(window):
    scores = score(uniform_heads(3, T, heads=2, window=window), uniform_heads(1, 2 * N, heads=2))
    visible_T = np.minimum(np.arange(T) + 1, window or T)
    expected = {
        "previous": (1 / visible_T[1:]).mean(),
        "first": (1 / visible_T)[: window or T].sum() / T,
        "entropy": np.log(visible_T).mean(),
        "distance": ((visible_T - 1) / 2).mean(),
        "prefix": (1 / np.arange(N + 1, 2 * N + 1)).mean(),
    }
    for name, value in expected.items():
        np.testing.assert_allclose(getattr(scores, f"{name}_3LN"), value, rtol=1e-5)
    uniform = [expected[name] for name in ("prefix", "previous", "first")]
    # Distances are 5, 2 and 28: a window of 4 shows one answer of three among four keys.
    seen_Q = QUESTIONS.distances < (window or T)
    retrieval_score = (seen_Q / visible_T[QUESTIONS.query_Q]).mean()
    assert window != 4 or retrieval_score == pytest.approx(1 / 12)
    uniform += [retrieval_score, expected["entropy"], expected["distance"]]
    np.testing.assert_allclose(scores.uniform_LX[0], uniform, rtol=1e-5)


def test_a_previous_token_head():
    scores = score(attending_back(1))
    assert scores.previous_3LN == pytest.approx(1)
    assert scores.distance_3LN == pytest.approx((T - 1) / T)
    assert scores.entropy_3LN == pytest.approx(0, abs=1e-5)
    assert scores.first_3LN == pytest.approx(2 / T)
    # Of equal weights, whatever the head's are.
    assert scores.uniform_LX[0, 1] == pytest.approx((1 / np.arange(2, T + 1)).mean())
    for distance, share in ((T, 1), (0, 0)):  # the first token is a sink; the query itself is none
        sinks = score(attending_back(distance)).numbers()["sinks (share of heads)"]
        assert sinks.value == share


def test_an_induction_head_matches_prefixes():
    """Its keys contain the previous token, like keys above a previous-token head."""
    ids_BT = np.tile(np.stack([np.random.default_rng(i).permutation(N) for i in range(3)]), 2)
    before_BS = np.roll(ids_BT, 1, axis=1)
    before_BS[:, 0] = N  # the first token has no previous token
    repeated = make_capture(one_hot(ids_BT, N + 2), one_hot(before_BS, N + 2), "nope")
    assert score(attending_back(1), repeated).prefix_3LN == pytest.approx(1)
    # A head that attends to the last occurrence of its own token scores 0.
    copies = make_capture(one_hot(ids_BT, N + 2), one_hot(ids_BT, N + 2), "nope")
    assert score(attending_back(1), copies).prefix_3LN == pytest.approx(0)


def test_retrieval_counts_the_largest_weight_of_correct_answers():
    distance_BT = np.tile(QUESTIONS.distances[:, None], T)
    assert retrieval(attending_back(distance_BT), QUESTIONS, ALL_RIGHT) == pytest.approx(1)
    distance_BT[0] += 1
    score_3LN = retrieval(attending_back(distance_BT), QUESTIONS, ALL_RIGHT)
    assert score_3LN[0] == pytest.approx(2 / 3)
    assert score_3LN[1] < 2 / 3 < score_3LN[2]
    right_Q = np.array([False, True, True])
    assert retrieval(attending_back(distance_BT), QUESTIONS, right_Q)[0] == 1
    assert np.isnan(retrieval(attending_back(distance_BT), QUESTIONS, ~ALL_RIGHT)).all()
