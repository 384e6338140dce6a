"""The viewer's arrays: weights in a byte each, rotated queries and keys, predictions.

A weight w is stored as the byte v = round(255 sqrt(w)) and decoded as (v / 255)², which keeps small
weights (a byte of 1 is 0.0015%). The error is at most sqrt(w) / 255 + 1 / 510², which is 0.4% for a
weight near 1 and 0.04% for a weight of 1%.
"""

from collections.abc import Sequence

import jax
import numpy as np

from ropewalk.probes.capturing import Capture

_NUM_PREDICTED = 2  # likeliest next tokens on the page


def to_bytes(weights: np.ndarray) -> np.ndarray:
    """Encode weights between 0 and 1, of any shape, as uint8."""
    return np.rint(255 * np.sqrt(weights)).astype(np.uint8)


def pack_rows(captured: Capture, heads: Sequence[tuple[int, int]]) -> list[dict[str, np.ndarray]]:
    """Return the arrays of every row of a capture; some heads are the first axis.

    C heads, P = T (T + 1) / 2 pairs of a query and a key, M = T distances.

    Returns:
      By name: `tiles`, uint8 `[C, P]`: weights, ordered by query and then by key.
      `weight`, `score` and `spread`, float32 `[C, M]`: mean weight, mean logit and its standard
      deviation over queries, by distance from 0; NaN at masked distances.
      `query` and `key`, int8 `[C, T, R, 2]`, and their units `query_unit` and `key_unit`, float32
      `[C, R]`: pairs after rotation, whose products add up to the logit.
      `expected`, int32 `[T, 2]`: the likeliest ids after each token, and `chance`, float32: their
      probabilities.
    """
    layers = {layer: _pack_layer(captured, layer) for layer in {layer for layer, _ in heads}}
    return [
        {
            name: np.stack([layers[layer][name][row, head] for layer, head in heads])
            for name in layers[heads[0][0]]
        }
        | predict_next(captured, row)
        for row in range(len(captured.tokens_BT))
    ]


def _pack_layer(captured: Capture, layer: int) -> dict[str, np.ndarray]:
    """Return the arrays of `pack_rows` of all rows and heads of a layer, `[B, N, ...]`."""
    q_BTNH, k_BSKH = map(np.asarray, captured.rotated(layer))
    k_BSNH = np.repeat(k_BSKH, q_BTNH.shape[2] // k_BSKH.shape[2], axis=2)
    B, T, N, _ = q_BTNH.shape
    tiles, sums = [], np.zeros((4, B, N, T))
    for indices_T, logits_BNTS, weights_BNTS in captured.chunks(layer):
        distances_TS = indices_T[:, None] - np.arange(T)
        is_before_TS = distances_TS >= 0
        weights_BNP = np.asarray(weights_BNTS)[..., is_before_TS]
        logits_BNP = np.asarray(logits_BNTS, float)[..., is_before_TS]
        visible_BNP = np.isfinite(logits_BNP)
        logits_BNP = np.where(visible_BNP, logits_BNP, 0)
        tiles.append(to_bytes(weights_BNP))
        sums += np.apply_along_axis(
            lambda x_P, distance_P: np.bincount(distance_P, x_P, T),
            -1,
            np.stack([visible_BNP, weights_BNP, logits_BNP, logits_BNP**2]),
            distances_TS[is_before_TS],
        )
    count_BNM, *sums = sums
    with np.errstate(invalid="ignore"):  # 0 / 0: masked distances
        weight_BNM, score_BNM, square_BNM = sums / count_BNM
    return {
        **_quantize("query", q_BTNH),
        **_quantize("key", k_BSNH),
        "tiles": np.concatenate(tiles, axis=-1),
        "weight": weight_BNM.astype(np.float32),
        "score": score_BNM.astype(np.float32),
        "spread": np.sqrt(np.maximum(square_BNM - score_BNM**2, 0)).astype(np.float32),
    }


def _quantize(name: str, x_BTNH: np.ndarray) -> dict[str, np.ndarray]:
    """Return pairs of features (x[i], x[i + R]) as int8 multiples of each pair's unit."""
    x_BNTR2 = np.stack(np.split(x_BTNH, 2, axis=-1), axis=-1).swapaxes(1, 2)
    unit_BNR = np.maximum(np.abs(x_BNTR2).max(axis=(2, 4)) / 127, 1e-30)
    int8_BNTR2 = np.rint(x_BNTR2 / unit_BNR[:, :, None, :, None]).astype(np.int8)
    return {name: int8_BNTR2, f"{name}_unit": unit_BNR.astype(np.float32)}


def predict_next(captured: Capture, row: int) -> dict[str, np.ndarray]:
    """Return `expected` and `chance` of a row."""
    parts = []
    for start in range(0, captured.length, 256):  # limits the logits of large vocabularies
        hidden_1TD = captured.hidden_BTD[row : row + 1, start : start + 256]
        logits_TV = captured.unembed(hidden_1TD)[0]
        parts.append(jax.lax.top_k(jax.nn.softmax(logits_TV), _NUM_PREDICTED))
    chance_TE, ids_TE = (np.concatenate(part) for part in zip(*parts, strict=True))
    return {"expected": ids_TE.astype(np.int32), "chance": chance_TE.astype(np.float32)}


def find_recalls(tokens_T: np.ndarray) -> list[tuple[int, int]]:
    """Return pairs (query, key) of tokens that the row before them determines.

    The query is a token that occurred before and always had the same follower, which follows it
    again; the key is the last occurrence of that follower. In key-value documents these are the
    questions; in a text, names rather than brackets.
    """
    recalls, after = [], {}
    followed = zip(tokens_T[:-1].tolist(), tokens_T[1:].tolist(), strict=True)
    for query, (token, follower) in enumerate(followed):
        before, key = after.get(token, (follower, 0))
        if key and before == follower:
            recalls.append((query, key))
        # None, which is no token, marks tokens that have had two followers.
        after[token] = (follower if before == follower else None, query + 1)
    return recalls
