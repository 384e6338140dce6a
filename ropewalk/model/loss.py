"""Next-token loss and scores, without a float32 array `[B, T, V]` when V is large."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from ropewalk.model import axes, vocabulary
from ropewalk.model.config import Architecture
from ropewalk.model.transformer import Params, logits, output_matrix

# Maximum number of float32 logits on a device if `loss_chunk` is None: 256 MiB.
MAX_LOGITS = 2**26
# The same on a TPU, about 1/32 of its memory. Each chunk reads the output matrix, and reads and
# writes its gradient, so short chunks are slower; from a few thousand tokens on that is negligible.
MAX_LOGITS_OF = {"TPU v4": 2**28, "TPU v5 lite": 2**27, "TPU v5": 2**29, "TPU v6 lite": 2**28}
MAX_LOGITS_OF |= {"TPU7x": 2**29}
MAX_TOKENS = 4096


class TokenScores(NamedTuple):
    """Scores of each target, `[B, T]`.

    Attributes:
      nll_BT: float32, negative log likelihood in nats.
      correct_BT: bool, the target is the argmax; ties go to the lowest id.
      rank_BT: int32, number of ids before the target; 0 is best.
    """

    nll_BT: jax.Array
    correct_BT: jax.Array
    rank_BT: jax.Array


def tokens_at_once(vocab_size: int, device_kind: str) -> int:
    """Return the number of tokens whose logits may exist at once on a device of this kind."""
    if device_kind not in MAX_LOGITS_OF:
        return MAX_LOGITS // vocab_size
    return min(MAX_TOKENS, MAX_LOGITS_OF[device_kind] // vocab_size)


def _chunk_length(config: Architecture, B: int, T: int) -> int:
    """Return the number of tokens of a chunk: the maximum, or somewhat fewer.

    It is a divisor of T if one is at least half the maximum; else the last chunk is padded.
    """
    # Number of ids on a device.
    vocab_size = config.vocab_size // axes.devices_along("tensor")
    num_tokens = tokens_at_once(vocab_size, axes.device_kind())
    limit = min(T, max(1, config.loss_chunk or num_tokens // B))
    divisors = (length for length in range(limit, limit // 2, -1) if T % length == 0)
    return next(divisors, -(-T // -(-T // limit)))


def _over_chunks(
    config: Architecture, function, params: Params, hidden_BTD: jax.Array, targets_BT: jax.Array
):
    """Apply `function(output_VD, hidden, targets)` to chunks of T, under `jax.checkpoint`."""

    def in_chunks(output_VD, hidden_BTD, targets_BT):
        B, T = targets_BT.shape
        # Gather once, not once per chunk.
        output_VD = vocabulary.gather_features(output_VD, config.compute_dtype)
        length = _chunk_length(config, B, T)
        if length == T:
            return function(output_VD, hidden_BTD, targets_BT)

        def chunks(x):  # [B, T, ...] to [chunks, B, length, ...]
            x = jnp.pad(x, [(0, -T % length if i == 1 else 0) for i in range(x.ndim)])
            return jnp.moveaxis(x.reshape(B, -1, length, *x.shape[2:]), 1, 0)

        score = jax.checkpoint(functools.partial(function, output_VD))
        out = jax.lax.map(lambda chunk: score(*chunk), (chunks(hidden_BTD), chunks(targets_BT)))
        return jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1).reshape(B, -1)[:, :T], out)

    return vocabulary.map_shards(in_chunks)(output_matrix(config, params), hidden_BTD, targets_BT)


def token_nll(
    config: Architecture, params: Params, hidden_BTD: jax.Array, targets_BT: jax.Array
) -> jax.Array:
    """Return the negative log likelihood of each target, float32 `[B, T]`, in nats."""

    def nll(output_VD, x_BTD, targets_BT):
        logits_BTV = logits(output_VD, x_BTD)
        target_BT = vocabulary.target_logits(logits_BTV, targets_BT)[..., 0]
        return vocabulary.log_sum_exp(logits_BTV) - target_BT

    with jax.named_scope("loss"):
        return _over_chunks(config, nll, params, hidden_BTD, targets_BT)


def token_scores(
    config: Architecture, params: Params, hidden_BTD: jax.Array, targets_BT: jax.Array
) -> TokenScores:
    """Return the loss, correctness, and rank of each target."""

    def scores(output_VD, x_BTD, targets_BT):
        logits_BTV = logits(output_VD, x_BTD)
        target_BT1 = vocabulary.target_logits(logits_BTV, targets_BT)
        lower_V = vocabulary.local_ids(logits_BTV) < targets_BT[..., None]
        before_BTV = (logits_BTV > target_BT1) | ((logits_BTV == target_BT1) & lower_V)
        rank_BT = vocabulary.count_ids(before_BTV)
        nll_BT = vocabulary.log_sum_exp(logits_BTV) - target_BT1[..., 0]
        # Comparisons with NaN are false, so a NaN logit would rank first: require a finite loss.
        return TokenScores(nll_BT, (rank_BT == 0) & jnp.isfinite(nll_BT), rank_BT)

    return _over_chunks(config, scores, params, hidden_BTD, targets_BT)
