"""The viewer's arrays: weights in a byte each, rotated queries and keys, predictions.

A weight w is stored as the byte v = round(255 sqrt(w)) and decoded as (v / 255)², which keeps small
weights (a byte of 1 is 0.0015%). The error is at most sqrt(w) / 255 + 1 / 510², which is 0.4% for a
weight near 1 and 0.04% for a weight of 1%.
"""

from collections.abc import Sequence

import jax
import numpy as np

from ropewalk.model import transformer
from ropewalk.probes.inside import Capture

_NUM_PREDICTED = 2  # likeliest next tokens on the page


def to_bytes(weights: np.ndarray) -> np.ndarray:
    """Encode weights between 0 and 1, of any shape, as uint8."""
    return np.rint(255 * np.sqrt(weights)).astype(np.uint8)


def pack_heads(inside: Capture, heads: Sequence[tuple[int, int]]) -> list[dict[str, np.ndarray]]:
    """Return the arrays of some heads for every row of a capture; heads are the first axis.

    C heads, P = T (T + 1) / 2 pairs of a query and a key, M = T distances.

    Returns:
      By name: `tiles`, uint8 `[C, P]`: weights, ordered by query and then by key.
      `weight`, `score` and `spread`, float32 `[C, M]`: mean weight, mean logit and its standard
      deviation over queries, by distance from 0; NaN at masked distances.
      `query` and `key`, int8 `[C, T, R, 2]`, and their units `query_unit` and `key_unit`, float32
      `[C, R]`: pairs after rotation, whose products add up to the logit.
    """
    by_layer = {layer: _pack_layer(inside, layer) for layer in dict.fromkeys(l for l, _ in heads)}
    return [
        {
            name: np.stack([by_layer[layer][row][name][head] for layer, head in heads])
            for name in by_layer[heads[0][0]][row]
        }
        for row in range(len(inside.tokens_BT))
    ]


def _pack_layer(inside: Capture, layer: int) -> list[dict[str, np.ndarray]]:
    """Return the arrays of `pack_heads` of every head of a layer."""
    q_BTNH, k_BSKH = map(np.asarray, inside.rotated(layer))
    k_BSNH = np.repeat(k_BSKH, q_BTNH.shape[2] // k_BSKH.shape[2], axis=2)
    rows = [
        {**_quantize("query", q_TNH), **_quantize("key", k_SNH)}
        for q_TNH, k_SNH in zip(q_BTNH, k_BSNH, strict=True)
    ]
    B, T, N, _ = q_BTNH.shape
    tiles_BNP = np.empty((B, N, T * (T + 1) // 2), np.uint8)
    sums = np.zeros((4, B, N, T))  # visible keys, weights, logits, their squares; by distance
    for queries, logits_BNTS in inside.chunks(layer):
        t = np.arange(T)[queries]
        is_before_TS = np.arange(T) <= t[:, None]
        pairs = slice(t[0] * (t[0] + 1) // 2, (t[-1] + 1) * (t[-1] + 2) // 2)
        distance_P = (t[:, None] - np.arange(T))[is_before_TS]
        weights_BNP = np.asarray(jax.nn.softmax(logits_BNTS))[..., is_before_TS]
        logits_BNP = np.asarray(logits_BNTS)[..., is_before_TS]
        tiles_BNP[..., pairs] = to_bytes(weights_BNP)
        for head in np.ndindex(B, N):
            visible_P = np.isfinite(logits_BNP[head])
            logits_P = np.where(visible_P, logits_BNP[head], 0).astype(float)
            values = visible_P, weights_BNP[head], logits_P, logits_P**2
            for sum_BNM, values_P in zip(sums, values, strict=True):
                sum_BNM[head] += np.bincount(distance_P, values_P, T)
    with np.errstate(invalid="ignore"):  # 0 / 0: masked distances
        weight_BNM, score_BNM, square_BNM = sums[1:] / sums[0]
    spread_BNM = np.sqrt(np.maximum(square_BNM - score_BNM**2, 0))
    for row, arrays in enumerate(rows):
        arrays |= {
            "tiles": tiles_BNP[row],
            "weight": weight_BNM[row].astype(np.float32),
            "score": score_BNM[row].astype(np.float32),
            "spread": spread_BNM[row].astype(np.float32),
        }
    return rows


def _quantize(name: str, x_TNH: np.ndarray) -> dict[str, np.ndarray]:
    """Return pairs of features (x[i], x[i + R]) as int8 multiples of each pair's unit."""
    x_NTR2 = np.stack(np.split(x_TNH, 2, axis=-1), axis=-1).transpose(1, 0, 2, 3)
    unit_NR = np.maximum(np.abs(x_NTR2).max(axis=(1, 3)) / 127, 1e-30)
    int8_NTR2 = np.rint(x_NTR2 / unit_NR[:, None, :, None]).astype(np.int8)
    return {name: int8_NTR2, f"{name}_unit": unit_NR.astype(np.float32)}


def predict_next(inside: Capture, row: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the likeliest ids `[T, 2]` after each token of a row, and their probabilities."""
    ids, chances = [], []
    for start in range(0, inside.length, 256):  # limits the logits of large vocabularies
        hidden_1TD = inside.hidden_BTD[row : row + 1, start : start + 256]
        logits_TV = transformer.unembed(inside.config, inside.params, hidden_1TD)[0]
        chance_TE, ids_TE = jax.lax.top_k(jax.nn.softmax(logits_TV), _NUM_PREDICTED)
        ids.append(np.asarray(ids_TE, np.int32))
        chances.append(np.asarray(chance_TE, np.float32))
    return np.concatenate(ids), np.concatenate(chances)


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
