"""Next-token loss and scores, without ever holding `[B, T, V]` in float32 when V is large."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from model.config import ModelConfig
from model.transformer import Params, unembed

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
    """The largest divisor of T within the limit on tokens whose logits exist at once."""
    num_devices = max(1, jax.sharding.get_abstract_mesh().size)  # 0 where no mesh is set
    limit = config.loss_chunk or num_devices * MAX_LOGITS // (B * config.vocab_size)
    return max(length for length in range(1, T + 1) if T % length == 0 and length <= max(1, limit))


def _over_chunks(config: ModelConfig, function, hidden_BTD: jax.Array, targets_BT: jax.Array):
    """`function(hidden, targets)` on stretches of T, recomputed in the backward pass."""
    B, T, D = hidden_BTD.shape
    length = _chunk_length(config, B, T)
    if length == T:
        return function(hidden_BTD, targets_BT)
    chunks = (
        jnp.moveaxis(hidden_BTD.reshape(B, T // length, length, D), 1, 0),
        jnp.moveaxis(targets_BT.reshape(B, T // length, length), 1, 0),
    )
    out = jax.lax.map(lambda chunk: jax.checkpoint(function)(*chunk), chunks)
    return jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1).reshape(B, T), out)


def token_nll(
    config: ModelConfig, params: Params, hidden_BTD: jax.Array, targets_BT: jax.Array
) -> jax.Array:
    """Negative log likelihood of each target, float32 `[B, T]`, in nats."""

    def nll(x_BTD, targets_BT):
        logits_BTV = unembed(config, params, x_BTD)
        target_BT = jnp.take_along_axis(logits_BTV, targets_BT[..., None], axis=-1)[..., 0]
        return jax.nn.logsumexp(logits_BTV, axis=-1) - target_BT

    with jax.named_scope("loss"):
        return _over_chunks(config, nll, hidden_BTD, targets_BT)


def token_scores(
    config: ModelConfig, params: Params, hidden_BTD: jax.Array, targets_BT: jax.Array
) -> TokenScores:
    """Loss, correctness and rank of each target."""

    def scores(x_BTD, targets_BT):
        logits_BTV = unembed(config, params, x_BTD)
        target_BT1 = jnp.take_along_axis(logits_BTV, targets_BT[..., None], axis=-1)
        lower_V = jnp.arange(config.vocab_size) < targets_BT[..., None]
        before_BTV = (logits_BTV > target_BT1) | ((logits_BTV == target_BT1) & lower_V)
        rank_BT = before_BTV.sum(-1, dtype=jnp.int32)
        nll_BT = jax.nn.logsumexp(logits_BTV, axis=-1) - target_BT1[..., 0]
        # A NaN logit compares as false with everything: it must not count as the best.
        return TokenScores(nll_BT, (rank_BT == 0) & jnp.isfinite(nll_BT), rank_BT)

    return _over_chunks(config, scores, hidden_BTD, targets_BT)
