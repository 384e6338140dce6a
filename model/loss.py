"""Next-token loss and scores, without ever holding `[B, T, V]` in float32 when V is large."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from model.config import ModelConfig
from model.transformer import Params, logits, output_matrix

# Float32 logits that may exist at once on a device where `loss_chunk` is not given: 256 MiB.
MAX_LOGITS = 2**26


class TokenScores(NamedTuple):
    """How the model does on each target, `[B, T]`.

    Attributes:
      nll_BT: float32, negative log likelihood in nats.
      correct_BT: bool, the target is the argmax; ties go to the lowest id.
      rank_BT: int32, how many ids come before the target; 0 is best.
    """

    nll_BT: jax.Array
    correct_BT: jax.Array
    rank_BT: jax.Array


def _chunk_length(config: ModelConfig, B: int, T: int) -> int:
    """Tokens of a chunk of T: within the limit on logits that exist at once, near it if possible.

    A divisor of T where one lies in the upper half of what fits; else the last chunk is filled up.
    """
    num_devices = max(1, jax.sharding.get_abstract_mesh().size)  # 0 where no mesh is set
    limit = config.loss_chunk or num_devices * MAX_LOGITS // (B * config.vocab_size)
    limit = min(T, max(1, limit))
    divisors = (length for length in range(limit, limit // 2, -1) if T % length == 0)
    return next(divisors, -(-T // -(-T // limit)))


def _over_chunks(config: ModelConfig, function, hidden_BTD: jax.Array, targets_BT: jax.Array):
    """`function(hidden, targets)` on shards of T, recomputed in the backward pass."""
    B, T = targets_BT.shape
    # Devices that split a row each take chunks of their own shard.
    num_shards = jax.sharding.get_abstract_mesh().shape.get("sequence", 1)
    shard = T // num_shards
    length = _chunk_length(config, B * num_shards, shard)
    if length == shard:
        return function(hidden_BTD, targets_BT)

    def chunks(x):  # [B, T, ...] to [chunks, B, shards, length, ...]
        x = x.reshape(B, num_shards, shard, *x.shape[2:])
        x = jnp.pad(x, [(0, -shard % length if i == 2 else 0) for i in range(x.ndim)])
        return jnp.moveaxis(x.reshape(B, num_shards, -1, length, *x.shape[3:]), 2, 0)

    def rows(x):
        return jnp.moveaxis(x, 0, 2).reshape(B, num_shards, -1)[:, :, :shard].reshape(B, T)

    over_shards = jax.vmap(jax.checkpoint(function), in_axes=1, out_axes=1)
    out = jax.lax.map(lambda chunk: over_shards(*chunk), (chunks(hidden_BTD), chunks(targets_BT)))
    return jax.tree.map(rows, out)


def token_nll(
    config: ModelConfig, params: Params, hidden_BTD: jax.Array, targets_BT: jax.Array
) -> jax.Array:
    """Negative log likelihood of each target, float32 `[B, T]`, in nats."""
    output_VD = output_matrix(config, params)  # here, or each chunk would gather it anew

    def nll(x_BTD, targets_BT):
        logits_BTV = logits(output_VD, x_BTD)
        target_BT = jnp.take_along_axis(logits_BTV, targets_BT[..., None], axis=-1)[..., 0]
        return jax.nn.logsumexp(logits_BTV, axis=-1) - target_BT

    with jax.named_scope("loss"):
        return _over_chunks(config, nll, hidden_BTD, targets_BT)


def token_scores(
    config: ModelConfig, params: Params, hidden_BTD: jax.Array, targets_BT: jax.Array
) -> TokenScores:
    """Loss, correctness and rank of each target."""
    output_VD = output_matrix(config, params)

    def scores(x_BTD, targets_BT):
        logits_BTV = logits(output_VD, x_BTD)
        target_BT1 = jnp.take_along_axis(logits_BTV, targets_BT[..., None], axis=-1)
        lower_V = jnp.arange(config.vocab_size) < targets_BT[..., None]
        before_BTV = (logits_BTV > target_BT1) | ((logits_BTV == target_BT1) & lower_V)
        rank_BT = before_BTV.sum(-1, dtype=jnp.int32)
        nll_BT = jax.nn.logsumexp(logits_BTV, axis=-1) - target_BT1[..., 0]
        # A NaN logit compares as false with everything: it must not count as the best.
        return TokenScores(nll_BT, (rank_BT == 0) & jnp.isfinite(nll_BT), rank_BT)

    return _over_chunks(config, scores, hidden_BTD, targets_BT)
