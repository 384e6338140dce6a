"""Heads whose scores are known: of equal weights in closed form, and built to do one thing."""

import math

import numpy as np
import pytest

from probes.asked.head_scores import HeadScores, head_scores, retrieval
from probes.questions import Questions
from tests.probes.helpers import holding

T, N = 64, 50
SURE = 100.0  # a logit that leaves nothing to the others
pytestmark = pytest.mark.usefixtures("unoptimized")

# One question a row, and its answer.
ASKED = Questions(np.arange(3), np.array([9, 20, 30]), np.array([4, 18, 2]), np.array([[4, 18, 2]]))
ALL = np.ones(3, bool)


def one_hot(x_BT: np.ndarray, size: int) -> np.ndarray:
    """Pairs `[B, T, 1, size]` whose products are SURE where numbers are equal, else 0."""
    return math.sqrt(SURE * math.sqrt(2 * size)) * np.eye(size)[x_BT][:, :, None]


def looking_back(distance_BT: np.ndarray | int):
    """A head that finds the key so many tokens before the query; the first where there is none."""
    places_BT = np.tile(np.arange(T), (3, 1))
    keys_BT = np.maximum(places_BT - distance_BT, 0)
    return holding(one_hot(keys_BT, T), one_hot(places_BT, T), "nope")


def nothing(rows: int, length: int, *, heads: int = 1, window: int | None = None):
    """Heads that know nothing: every logit is 0."""
    return holding(*np.zeros((2, rows, length, heads, 4)), "nope", window)


def found(inside, repeated=None) -> HeadScores:
    return head_scores(inside, ASKED, ALL, repeated or nothing(1, 2 * N), inside)


@pytest.mark.parametrize("window", [None, 21])
def test_equal_weights(window):
    scores = found(nothing(3, T, heads=2, window=window), nothing(1, 2 * N, heads=2))
    # Over 1 / (tokens that a query sees), by hand.
    seen_T = np.minimum(np.arange(T) + 1, window or T)
    expected = {
        "previous": (1 / seen_T[1:]).mean(),
        "first": (1 / seen_T)[: window or T].sum() / T,
        "entropy": np.log(seen_T).mean(),
        "distance": ((seen_T - 1) / 2).mean(),
        "prefix": (1 / np.arange(N + 1, 2 * N + 1)).mean(),
    }
    if window is None:
        assert round(expected["prefix"], 4) == 0.0138
        assert round(expected["previous"], 4) == 0.0594
        assert round(expected["first"], 4) == 0.0741
    for name, value in expected.items():
        np.testing.assert_allclose(getattr(scores, f"{name}_3LN"), value, rtol=1e-5)
    uniform = [expected[name] for name in ("prefix", "previous", "first")]
    uniform += [(1 / seen_T[ASKED.query_Q]).mean(), expected["entropy"], expected["distance"]]
    np.testing.assert_allclose(scores.uniform_LX[0], uniform, rtol=1e-5)


def test_a_previous_token_head():
    scores = found(looking_back(1))
    assert scores.previous_3LN == pytest.approx(1)
    assert scores.distance_3LN == pytest.approx((T - 1) / T)
    assert scores.entropy_3LN == pytest.approx(0, abs=1e-5)
    assert scores.first_3LN == pytest.approx(2 / T)
    # Equal weights know nothing of it.
    assert scores.uniform_LX[0, 1] == pytest.approx(0.0594, abs=1e-4)


def test_a_sink():
    scores = found(looking_back(T))
    assert scores.first_3LN == pytest.approx(1)
    assert scores.numbers()["sinks (share of heads)"].value == 1
    assert found(looking_back(0)).numbers()["sinks (share of heads)"].value == 0


def test_an_induction_head_matches_prefixes():
    """Its keys know the token before them, as those of a head above a previous-token head do."""
    ids_BT = np.tile(np.stack([np.random.default_rng(i).permutation(N) for i in range(3)]), 2)
    before_BS = np.roll(ids_BT, 1, axis=1)
    before_BS[:, 0] = N  # nothing stands before the first
    repeated = holding(one_hot(ids_BT, N + 2), one_hot(before_BS, N + 2), "nope")
    assert found(looking_back(1), repeated).prefix_3LN == pytest.approx(1)
    # One that finds its own token's last occurrence finds none that follows it.
    copies = holding(one_hot(ids_BT, N + 2), one_hot(ids_BT, N + 2), "nope")
    assert found(looking_back(1), copies).prefix_3LN == pytest.approx(0)


def test_retrieval_is_where_the_heaviest_weight_lies():
    distance_BT = np.tile(ASKED.distances[:, None], T)
    assert retrieval(looking_back(distance_BT), ASKED, ALL) == pytest.approx(1)
    distance_BT[0] += 1
    score_3LN = retrieval(looking_back(distance_BT), ASKED, ALL)
    assert score_3LN[0] == pytest.approx(2 / 3)
    assert score_3LN[1] < 2 / 3 < score_3LN[2]


def test_retrieval_counts_what_is_answered_right():
    distance_BT = np.tile(ASKED.distances[:, None], T)
    distance_BT[0] += 1
    right_Q = np.array([False, True, True])
    assert retrieval(looking_back(distance_BT), ASKED, right_Q)[0] == 1
    assert np.isnan(retrieval(looking_back(distance_BT), ASKED, ~ALL)).all()


def test_of_several_heads_the_highest_is_told():
    q_BTNR, k_BTNR = one_hot(np.tile(np.arange(T), (3, 1)), T), np.zeros((3, T, 1, T))
    both = holding(np.repeat(q_BTNR, 2, axis=2), np.concatenate([k_BTNR, q_BTNR], axis=2), "nope")
    scores = found(both, nothing(1, 2 * N, heads=2))
    assert scores.previous_3LN[0] == pytest.approx(np.array([[0.0594, 0]]), abs=1e-4)
    highest = scores.numbers()["previous token, highest head"]
    assert highest == pytest.approx(scores.previous_3LN[:, 0, 0])
    assert [line["head"] for line in scores.lines()] == ["0", "1"]


def test_a_model_that_answers_nothing_has_scores_all_the_same():
    inside = looking_back(1)
    repeated = nothing(1, 2 * N)
    scores = head_scores(inside, ASKED, ~ALL, repeated, inside)
    assert np.isnan(scores.numbers()["retrieval, highest head"].value)
    assert scores.numbers()["previous token, highest head"].value == pytest.approx(1)
