"""Next-token loss and scores, without a float32 array `[B, T, V]` when V is large."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from ropewalk.model import axes, vocabulary
from ropewalk.model.config import Architecture
from ropewalk.model.kernels.matmul import product
from ropewalk.model.transformer import Params, logits, output_matrix

# Maximum number of float32 logits on a device if `loss_chunk` is None: 256 MiB.
MAX_LOGITS = 2**26
# The same on accelerators, about 1/32 of their memory. Each chunk reads the output matrix, and
# reads and writes its gradient, so short chunks are slower; from a few thousand tokens on that is
# negligible.
MAX_LOGITS_OF = {"TPU v4": 2**28, "TPU v5 lite": 2**27, "TPU v5": 2**29, "TPU v6 lite": 2**28}
MAX_LOGITS_OF |= {"TPU7x": 2**29, "NVIDIA H100 80GB HBM3": 2**29, "NVIDIA A100-SXM4-80GB": 2**29}
MAX_LOGITS_OF |= {"NVIDIA H200": 2**30, "NVIDIA B200": 2**30, "NVIDIA A100-SXM4-40GB": 2**28}
MAX_LOGITS_OF |= {"NVIDIA L4": 2**27, "NVIDIA GeForce RTX 4090": 2**27}
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


def _over_chunks(config: Architecture, function, *arrays_BT: jax.Array):
    """Apply `function(*arrays)` to chunks of T, one after another."""
    B, T = arrays_BT[0].shape[:2]
    length = _chunk_length(config, B, T)
    if length == T:
        return function(*arrays_BT)
    out = jax.lax.map(lambda chunk: function(*chunk), [_chunks(x, length) for x in arrays_BT])
    return jax.tree.map(lambda x: _join(x, T), out)


def _chunks(x_BT: jax.Array, length: int) -> jax.Array:
    """Return `[B, T, ...]` as `[chunks, B, length, ...]`, padded."""
    x_BT = jnp.pad(x_BT, [(0, -x_BT.shape[1] % length if i == 1 else 0) for i in range(x_BT.ndim)])
    return jnp.moveaxis(x_BT.reshape(x_BT.shape[0], -1, length, *x_BT.shape[2:]), 1, 0)


def _join(x_CBT: jax.Array, T: int) -> jax.Array:
    """Invert `_chunks`."""
    x_BCT = jnp.moveaxis(x_CBT, 0, 1)
    return x_BCT.reshape(x_BCT.shape[0], -1, *x_BCT.shape[3:])[:, :T]


def _gathered(function):
    """Return `function(output_VD, hidden_BTD, *arrays)` of a device's shard of the matrix."""

    def on_device(output_VD, x_BTD, *arrays_BT):
        # Gather once, not once per chunk.
        return function(vocabulary.gather_features(output_VD, x_BTD.dtype), x_BTD, *arrays_BT)

    return on_device


def _nll(output_VD: jax.Array, x_BTD: jax.Array, targets_BT: jax.Array) -> jax.Array:
    logits_BTV = logits(output_VD, x_BTD)
    target_BT = vocabulary.target_logits(logits_BTV, targets_BT)[..., 0]
    return vocabulary.log_sum_exp(logits_BTV) - target_BT


def total_nll(
    config: Architecture,
    params: Params,
    hidden_BTD: jax.Array,
    targets_BT: jax.Array,
    weights_BT: jax.Array,
    divisor: jax.Array,
) -> jax.Array:
    """Return the sum of the losses of all targets times their weights over `divisor`, a scalar.

    Each chunk of logits is computed once: where a gradient follows, the forward pass computes it,
    and takes products with the logits' gradient in the compute dtype. Weights and divisor have no
    gradient.
    """
    B, T = targets_BT.shape
    # XLA on a CPU is faster with its own derivative of a single chunk.
    is_plain = axes.on_one_cpu() and _chunk_length(config, B, T) == T
    compute = _total_nll if is_plain else _one_pass

    def share(output_VD, *arrays_BT):
        """Return this device's share of the sum, `[1, 1]`."""
        total: jax.Array = compute(config, output_VD, *arrays_BT)
        return total[None, None] / axes.devices_along("tensor")

    with jax.named_scope("loss"):
        shares = vocabulary.map_shards(_gathered(share), out_specs=axes.STREAM)
        arrays = hidden_BTD, targets_BT, weights_BT, divisor
        return shares(output_matrix(config, params), *arrays).sum()


def _total_nll(
    config: Architecture, output_VD, x_BTD, targets_BT, weights_BT, divisor
) -> jax.Array:
    nll = functools.partial(_nll, output_VD)
    return jnp.sum(_over_chunks(config, nll, x_BTD, targets_BT) * weights_BT) / divisor


def _forward(config: Architecture, output_VD, x_BTD, targets_BT, weights_BT, divisor):
    """Return the sum, and its gradients in the output matrix and in the hidden states."""
    dtype, (B, T) = x_BTD.dtype, targets_BT.shape
    cast_VD = output_VD.astype(dtype)
    # Divide after a product in bfloat16: a target's gradient, close to -1, loses no bits before.
    before, after = (divisor, 1) if dtype == jnp.float32 else (1, divisor)

    def chunk(doutput_VD, x_BTD, targets_BT, weights_BT):
        logits_BTV = logits(cast_VD, x_BTD)
        exp_BTV, total_BT1, top_BT1 = vocabulary.exponentials(logits_BTV)
        lse_BT1 = jnp.log(total_BT1) + top_BT1
        nll_BT = (lse_BT1 - vocabulary.target_logits(logits_BTV, targets_BT))[..., 0]
        weights_BT1 = (weights_BT / before)[..., None]
        dlogits_BTV = exp_BTV * (weights_BT1 / total_BT1)
        is_target_BTV = vocabulary.local_ids(logits_BTV) == targets_BT[..., None]
        dlogits_BTV = jnp.where(is_target_BTV, dlogits_BTV - weights_BT1, dlogits_BTV).astype(dtype)
        dx_BTD = (product("BTV,VD->BTD", dlogits_BTV, cast_VD) / after).astype(dtype)
        if dtype == jnp.float32:
            # As in `kernels.matmul`: a CPU then transposes the narrow x, not the wide gradient. It
            # lacks this product in bfloat16.
            rows = (x.reshape(-1, x.shape[-1]) for x in (x_BTD, dlogits_BTV))
            added_VD = product("ND,NV->DV", *rows).T
        else:
            added_VD = product("BTV,BTD->VD", dlogits_BTV, x_BTD)
        return doutput_VD + added_VD / after, (dx_BTD, nll_BT)

    arrays, zeros_VD = (x_BTD, targets_BT, weights_BT), jnp.zeros(output_VD.shape, jnp.float32)
    length = _chunk_length(config, B, T)
    if length == T:
        doutput_VD, (dx_BTD, nll_BT) = chunk(zeros_VD, *arrays)
    else:
        chunks = [_chunks(x, length) for x in arrays]
        doutput_VD, parts = jax.lax.scan(lambda total, x: chunk(total, *x), zeros_VD, chunks)
        dx_BTD, nll_BT = (_join(x, T) for x in parts)
    return jnp.sum(nll_BT * weights_BT) / divisor, (doutput_VD, dx_BTD)


def _backward(config: Architecture, gradients, g):
    # Devices along `tensor` have equal shares of the sum, but their own ids.
    g = g * axes.devices_along("tensor")
    return *((x * g).astype(x.dtype) for x in gradients), None, None, None


_one_pass = jax.custom_vjp(_total_nll, nondiff_argnums=(0,))
_one_pass.defvjp(_forward, _backward)


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

    def in_chunks(output_VD, *arrays_BT):
        return _over_chunks(config, functools.partial(scores, output_VD), *arrays_BT)

    mapped = vocabulary.map_shards(_gathered(in_chunks))
    return mapped(output_matrix(config, params), hidden_BTD, targets_BT)
