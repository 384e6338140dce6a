"""The page's arrays equal the capture's, up to quantization."""

import jax
import numpy as np
import pytest

from ropewalk.probes import capture
from ropewalk.probes.viewer.arrays import find_recalls, pack_rows, predict_next
from tests.probes.test_capturing import LENGTH, make_rows, random_model

HEADS = [(1, 0), (0, 1), (1, 1)]
GROUPED = dict(num_heads=4, num_kv_heads=2)


@pytest.fixture(scope="module", params=["grouped", "window"])
def captured(request):
    run = random_model(
        *{"grouped": (GROUPED, "rope(base=30)"), "window": (dict(window=5), "nope")}[request.param]
    )
    return capture(run, **make_rows(run))


def logits(captured, row: int, layer: int, head: int) -> np.ndarray:
    return np.asarray(captured.logits(layer))[row, head].astype(float)


def test_tiles_are_the_weights_by_query(captured):
    for row, by_name in enumerate(pack_rows(captured, HEADS)):
        for index, (layer, head) in enumerate(HEADS):
            weights_TS = np.asarray(captured.weights(layer))[row, head]
            ours_P, start = by_name["tiles"][index], 0
            for query in range(LENGTH):
                tile = ours_P[start : start + query + 1] / 255
                assert np.abs(tile - np.sqrt(weights_TS[query, : query + 1])).max() <= 0.501 / 255
                start += query + 1
            assert start == len(ours_P)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # means of no visible key
def test_profiles_are_means_over_visible_keys(captured):
    for row, by_name in enumerate(pack_rows(captured, [(1, 1)])):
        logits_TS, weights_TS = logits(captured, row, 1, 1), captured.weights(1)[row, 1]
        for distance in (0, 3, LENGTH - 1):  # a window masks the last
            score_T, weight_T = (np.diagonal(x, -distance) for x in (logits_TS, weights_TS))
            seen = np.isfinite(score_T)
            expected = score_T[seen].mean(), score_T[seen].std(), weight_T[seen].mean()
            ours = [by_name[name][0, distance] for name in ("score", "spread", "weight")]
            np.testing.assert_allclose(ours, expected, atol=1e-4)


def test_products_of_the_pairs_add_up_to_the_logit(captured):
    """The error is bounded by the rounding of features to a 127th of the largest."""
    for row, by_name in enumerate(pack_rows(captured, HEADS)):
        for index, (layer, head) in enumerate(HEADS):
            logits_TS = logits(captured, row, layer, head)
            q_unit_R, k_unit_R = by_name["query_unit"][index], by_name["key_unit"][index]
            q_TR2 = by_name["query"][index] * q_unit_R[:, None].astype(float)
            k_SR2 = by_name["key"][index] * k_unit_R[:, None].astype(float)
            q_error_T = np.abs(q_TR2).sum(axis=2) @ k_unit_R
            k_error_S = np.abs(k_SR2).sum(axis=2) @ q_unit_R
            error_TS = (q_error_T[:, None] + k_error_S + q_unit_R @ k_unit_R) / 2
            visible = np.isfinite(logits_TS)
            difference_TS = np.abs(np.einsum("trx,srx->ts", q_TR2, k_SR2) - logits_TS)
            assert (difference_TS[visible] <= error_TS[visible] + 1e-5).all()
            # The bound is not trivial.
            assert error_TS.max() < 0.1 * np.abs(logits_TS[visible]).max()


def test_predictions_are_the_likeliest_by_the_models_logits():
    run = random_model({}, "rope(base=30)")
    tokens_BT = make_rows(run)["tokens"]
    ids_TE, chance_TE = predict_next(capture(run, tokens_BT), 1).values()
    chance_TV = np.asarray(jax.nn.softmax(run.logits(tokens_BT)))[1]
    np.testing.assert_array_equal(ids_TE, np.argsort(-chance_TV, axis=1)[:, :2])
    np.testing.assert_allclose(chance_TE, np.take_along_axis(chance_TV, ids_TE, 1), rtol=1e-4)


def test_recalls_are_followers_that_never_changed():
    # 5 is followed by 1 twice; 7 by 2, then by 3, then by 3; 1 by 7 three times.
    tokens = np.array([5, 1, 7, 2, 5, 1, 7, 3, 1, 7, 3])
    assert find_recalls(tokens) == [(4, 1), (5, 2), (8, 6)]
