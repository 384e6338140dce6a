"""What the page holds of a capture: weights in a byte each, turned queries and keys, predictions.

A weight w is kept as the byte v = round(255 sqrt(w)) and read as (v / 255)²: small weights are seen
(a byte of 1 is 0.0015%), and what is read is wrong by at most sqrt(w) / 255 + 1 / 510², which is
0.4% for a weight near 1 and 0.04% for one of 1%.
"""

from collections.abc import Sequence

import jax
import numpy as np

from model import transformer
from probes.inside import Capture

_EXPECTED = 2  # tokens a page names of those a model expects next


def to_bytes(weights: np.ndarray) -> np.ndarray:
    """uint8 of weights between 0 and 1, of any shape."""
    return np.rint(255 * np.sqrt(weights)).astype(np.uint8)


def of_bytes(tiles: np.ndarray) -> np.ndarray:
    """The weights that `to_bytes` was given, as the page reads them."""
    return (tiles / 255.0) ** 2


def of_heads(inside: Capture, heads: Sequence[tuple[int, int]]) -> list[dict[str, np.ndarray]]:
    """Of every row of a capture, what is drawn of some heads, which lie in front, in their order.

    C heads, P = T (T + 1) / 2 pairs of a query and a key, M = T distances.

    Returns:
      By name: `tiles`, uint8 `[C, P]`: weights, the keys of the first query, of the second, ...
      `weight`, `score` and `spread`, float32 `[C, M]`: by distance from 0, over queries, the mean
      weight, the mean logit and its standard deviation; NaN where no query sees so far.
      `query` and `key`, int8 `[C, T, R, 2]`, and their units `query_unit` and `key_unit`, float32
      `[C, R]`: after rotation, pair by pair, so that products add up to the logit.
    """
    by_layer = {layer: _of_layer(inside, layer) for layer in dict.fromkeys(l for l, _ in heads)}
    return [
        {
            name: np.stack([by_layer[layer][row][name][head] for layer, head in heads])
            for name in by_layer[heads[0][0]][row]
        }
        for row in range(len(inside.tokens_BT))
    ]


def _of_layer(inside: Capture, layer: int) -> list[dict[str, np.ndarray]]:
    """As `of_heads`, of every head of a layer."""
    q_BTNH, k_BSKH = map(np.asarray, inside.rotated(layer))
    k_BSNH = np.repeat(k_BSKH, q_BTNH.shape[2] // k_BSKH.shape[2], axis=2)
    found = [
        {**_turned("query", q_TNH), **_turned("key", k_SNH)}
        for q_TNH, k_SNH in zip(q_BTNH, k_BSNH, strict=True)
    ]
    B, T, N, _ = q_BTNH.shape
    tiles_BNP = np.empty((B, N, T * (T + 1) // 2), np.uint8)
    sums = np.zeros((4, B, N, T))  # seen, weight, logit, its square; by distance
    for queries, logits_BNTS in inside.chunks(layer):
        t = np.arange(T)[queries]
        is_before_TS = np.arange(T) <= t[:, None]
        pairs = slice(t[0] * (t[0] + 1) // 2, (t[-1] + 1) * (t[-1] + 2) // 2)
        distance_P = (t[:, None] - np.arange(T))[is_before_TS]
        weights_BNP = np.asarray(jax.nn.softmax(logits_BNTS))[..., is_before_TS]
        logits_BNP = np.asarray(logits_BNTS)[..., is_before_TS]
        tiles_BNP[..., pairs] = to_bytes(weights_BNP)
        for place in np.ndindex(B, N):
            seen_P = np.isfinite(logits_BNP[place])
            logits_P = np.where(seen_P, logits_BNP[place], 0).astype(float)
            for number, values_P in enumerate((seen_P, weights_BNP[place], logits_P, logits_P**2)):
                sums[number][place] += np.bincount(distance_P, values_P, T)
    with np.errstate(invalid="ignore"):  # 0 / 0: no query sees so far
        weight_BNM, score_BNM, square_BNM = sums[1:] / sums[0]
    spread_BNM = np.sqrt(np.maximum(square_BNM - score_BNM**2, 0))
    for row, of_row in enumerate(found):
        of_row |= {
            "tiles": tiles_BNP[row],
            "weight": weight_BNM[row].astype(np.float32),
            "score": score_BNM[row].astype(np.float32),
            "spread": spread_BNM[row].astype(np.float32),
        }
    return found


def _turned(name: str, x_TNH: np.ndarray) -> dict[str, np.ndarray]:
    """Pairs of features (x[i], x[i + R]) in whole numbers of a unit that each pair has."""
    x_NTR2 = np.stack(np.split(x_TNH, 2, axis=-1), axis=-1).transpose(1, 0, 2, 3)
    unit_NR = np.maximum(np.abs(x_NTR2).max(axis=(1, 3)) / 127, 1e-30)
    whole_NTR2 = np.rint(x_NTR2 / unit_NR[:, None, :, None]).astype(np.int8)
    return {name: whole_NTR2, f"{name}_unit": unit_NR.astype(np.float32)}


def expected(inside: Capture, row: int) -> tuple[np.ndarray, np.ndarray]:
    """What a model expects after each token of a row: the likeliest ids `[T, 2]`, and how likely.

    Of fewer queries at once than a vocabulary of 100k tokens would fill the memory with.
    """
    ids, chances = [], []
    for start in range(0, inside.length, 256):
        hidden_1TD = inside.hidden_BTD[row : row + 1, start : start + 256]
        logits_TV = transformer.unembed(inside.config, inside.params, hidden_1TD)[0]
        chance_TE, ids_TE = jax.lax.top_k(jax.nn.softmax(logits_TV), _EXPECTED)
        ids.append(np.asarray(ids_TE, np.int32))
        chances.append(np.asarray(chance_TE, np.float32))
    return np.concatenate(ids), np.concatenate(chances)


def recalls(tokens_T: np.ndarray) -> list[tuple[int, int]]:
    """What a row leaves no doubt about: (query, key), as a head that recalls has them.

    The query is a token that was said before, and whatever followed it every time follows it again;
    the key is that follower, where it was said last. In key-value documents these are the
    questions; in a text, names rather than brackets.
    """
    found, after = [], {}
    followed = zip(tokens_T[:-1].tolist(), tokens_T[1:].tolist(), strict=True)
    for query, (token, follower) in enumerate(followed):
        before, key = after.get(token, (follower, 0))
        if key and before == follower:
            found.append((query, key))
        # None is no token: one that had two followers is in doubt from then on.
        after[token] = (follower if before == follower else None, query + 1)
    return found
