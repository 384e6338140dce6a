"""Embedding and output matrix, `[V, D]`, on a mesh: lookups, and gathers for logits.

Each device stores some features (`fsdp`) of some ids (`tensor`). By default XLA would sum the full
gradient of such a matrix in float32 on every device. Here a device gathers the matrix in the
compute dtype, sums the gradient of its own tokens in float32, sends the parts of other devices in
the compute dtype, and sums what it receives in float32. A single device skips all of this.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from ropewalk.model.axes import RULES, TOKENS, devices_along, on_one_device

_FEATURES, _IDS = str(RULES["embed"]), str(RULES["vocab"])


def map_shards(function: Callable, out_specs: PartitionSpec = TOKENS) -> Callable:
    """Map `function(matrix_VD, *arrays)` over devices, each with its shard of all arguments.

    All devices have the same scalars. `function` may call the other functions of this file,
    `gather_features` first.
    """
    if on_one_device():
        return function

    def parts(matrix_VD, *arrays):
        specs = (TOKENS if jnp.ndim(x) else PartitionSpec() for x in arrays)
        in_specs = (PartitionSpec(_IDS, _FEATURES), *specs)
        mapped = jax.shard_map(function, in_specs=in_specs, out_specs=out_specs, check_vma=False)
        return mapped(matrix_VD, *arrays)

    return parts


def gather_features(matrix_VD: jax.Array, dtype: jax.typing.DTypeLike) -> jax.Array:
    """Gather the features of all devices, sent in `dtype`; the result is float32.

    The gradient is summed in float32 and sent in `dtype`, rounded once.
    """
    if devices_along(_FEATURES) == 1:
        return matrix_VD

    @jax.custom_vjp
    def gather(matrix_VD):
        sent = matrix_VD.astype(dtype)
        return jax.lax.all_gather(sent, _FEATURES, axis=1, tiled=True).astype(jnp.float32)

    def scatter(_, g_VD):
        # Not `psum_scatter`: libtpu turns it into an all-reduce, which receives twice as much.
        num_devices = jax.lax.axis_size(_FEATURES)
        sent = jnp.split(g_VD.astype(dtype), num_devices, axis=1)
        received = jax.lax.all_to_all(jnp.stack(sent), _FEATURES, split_axis=0, concat_axis=0)
        return (received.astype(jnp.float32).sum(0),)

    gather.defvjp(lambda matrix_VD: (gather(matrix_VD), None), scatter)
    return gather(matrix_VD)


def look_up(matrix_VD: jax.Array, tokens_BT: jax.Array, dtype: jax.typing.DTypeLike) -> jax.Array:
    """Return rows of the matrix, `[B, T, D]` in `dtype`."""
    # Cast after the lookup, so that the gradients of a token's occurrences are summed in float32.
    if not _ids_are_split():
        return matrix_VD[tokens_BT].astype(dtype)
    index_BT = tokens_BT - _first_id(matrix_VD.shape[0])
    is_local_BT = (index_BT >= 0) & (index_BT < matrix_VD.shape[0])
    rows_BTD = jnp.where(is_local_BT[..., None], matrix_VD[jnp.where(is_local_BT, index_BT, 0)], 0)
    return jax.lax.psum(rows_BTD.astype(dtype), _IDS)


def target_logits(logits_BTV: jax.Array, targets_BT: jax.Array) -> jax.Array:
    """Return the logit of each token's target, `[B, T, 1]`."""
    if not _ids_are_split():
        return jnp.take_along_axis(logits_BTV, targets_BT[..., None], axis=-1)
    is_target_BTV = local_ids(logits_BTV) == targets_BT[..., None]
    return jax.lax.psum(jnp.where(is_target_BTV, logits_BTV, 0).sum(-1, keepdims=True), _IDS)


def log_sum_exp(logits_BTV: jax.Array) -> jax.Array:
    """Return the log-sum-exp over all ids, `[B, T]`."""
    if not _ids_are_split():
        return jax.nn.logsumexp(logits_BTV, axis=-1)
    _, total_BT1, top_BT1 = exponentials(logits_BTV)
    return (jnp.log(total_BT1) + top_BT1)[..., 0]


def exponentials(logits_BTV: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return exp(logits - top), their sum over all ids `[B, T, 1]`, and top, the largest logit."""
    top_BT1 = jax.lax.stop_gradient(logits_BTV).max(-1, keepdims=True)
    if _ids_are_split():
        top_BT1 = jax.lax.pmax(top_BT1, _IDS)
    exp_BTV = jnp.exp(logits_BTV - top_BT1)
    total_BT1 = exp_BTV.sum(-1, keepdims=True)
    return exp_BTV, jax.lax.psum(total_BT1, _IDS) if _ids_are_split() else total_BT1, top_BT1


def count_ids(mask_BTV: jax.Array) -> jax.Array:
    """Count the ids, of all devices, for which `mask_BTV` is true, int32 `[B, T]`."""
    count_BT = mask_BTV.sum(-1, dtype=jnp.int32)
    return jax.lax.psum(count_BT, _IDS) if _ids_are_split() else count_BT


def local_ids(logits_BTV: jax.Array) -> jax.Array:
    """Return the ids of the logits that are on this device, `[V]`."""
    V = logits_BTV.shape[-1]
    return jnp.arange(V) + _first_id(V) if _ids_are_split() else jnp.arange(V)


def _ids_are_split() -> bool:
    return devices_along(_IDS) > 1


def _first_id(V: int) -> jax.Array:
    return V * jax.lax.axis_index(_IDS)
