"""The two matrices `[V, D]` that know ids, on a mesh: looked up, and gathered for logits.

Each device has some features (`fsdp`) of some ids (`tensor`). XLA, left to itself, adds up the
gradients of such a matrix whole and in float32 on every device; here a device gathers it in the
compute dtype, adds up in float32 what its own tokens say, and what the others say of its features,
which they send in the compute dtype. One device does none of this.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from model.axes import RULES, TOKENS

_FEATURES, _IDS = RULES["embed"], RULES["vocab"]


def on_parts(function: Callable) -> Callable:
    """`function(matrix_VD, *arrays)` on each device's part of the matrix, and its rows and tokens.

    The other functions of this file are for its inside, `gathered` first.
    """
    if _alone():
        return function

    def parts(matrix_VD, *arrays):
        in_specs = (PartitionSpec(_IDS, _FEATURES), *(TOKENS for _ in arrays))
        return jax.shard_map(function, in_specs=in_specs, out_specs=TOKENS, check_vma=False)(
            matrix_VD, *arrays
        )

    return parts


def gathered(matrix_VD: jax.Array, dtype: jax.typing.DTypeLike) -> jax.Array:
    """The matrix with the features of all devices, float32, of which `dtype` was sent.

    Its gradient adds up in float32; between devices it travels in `dtype`, rounded once.
    """
    if jax.sharding.get_abstract_mesh().shape.get(_FEATURES, 1) == 1:
        return matrix_VD

    @jax.custom_vjp
    def gather(matrix_VD):
        sent = matrix_VD.astype(dtype)
        return jax.lax.all_gather(sent, _FEATURES, axis=1, tiled=True).astype(jnp.float32)

    def scatter(_, g_VD):
        # Not `psum_scatter`, which libtpu makes an all-reduce of: that receives twice as much.
        num_devices = jax.lax.axis_size(_FEATURES)
        sent = jnp.split(g_VD.astype(dtype), num_devices, axis=1)
        own = jax.lax.all_to_all(jnp.stack(sent), _FEATURES, split_axis=0, concat_axis=0)
        return (own.astype(jnp.float32).sum(0),)

    gather.defvjp(lambda matrix_VD: (gather(matrix_VD), None), scatter)
    return gather(matrix_VD)


def look_up(matrix_VD: jax.Array, tokens_BT: jax.Array, dtype: jax.typing.DTypeLike) -> jax.Array:
    """Rows of the matrix, `[B, T, D]` in `dtype`."""
    # Cast after it: the gradients of a token's many places add up in float32.
    if not _ids_are_split():
        return matrix_VD[tokens_BT].astype(dtype)
    own_BT = tokens_BT - _first_id(matrix_VD.shape[0])
    here_BT = (own_BT >= 0) & (own_BT < matrix_VD.shape[0])
    rows_BTD = jnp.where(here_BT[..., None], matrix_VD[jnp.where(here_BT, own_BT, 0)], 0)
    return jax.lax.psum(rows_BTD.astype(dtype), _IDS)


def of_targets(logits_BTV: jax.Array, targets_BT: jax.Array) -> jax.Array:
    """Of each token's logits that of its target, `[B, T, 1]`."""
    if not _ids_are_split():
        return jnp.take_along_axis(logits_BTV, targets_BT[..., None], axis=-1)
    is_target_BTV = ids(logits_BTV) == targets_BT[..., None]
    return jax.lax.psum(jnp.where(is_target_BTV, logits_BTV, 0).sum(-1, keepdims=True), _IDS)


def log_sum_exp(logits_BTV: jax.Array) -> jax.Array:
    """Over all ids, `[B, T]`."""
    if not _ids_are_split():
        return jax.nn.logsumexp(logits_BTV, axis=-1)
    top_BT1 = jax.lax.stop_gradient(logits_BTV).max(-1, keepdims=True)
    top_BT1 = jax.lax.pmax(top_BT1, _IDS)
    total_BT = jax.lax.psum(jnp.exp(logits_BTV - top_BT1).sum(-1), _IDS)
    return jnp.log(total_BT) + top_BT1[..., 0]


def count(is_so_BTV: jax.Array) -> jax.Array:
    """Of how many of all ids something is true, int32 `[B, T]`."""
    own_BT = is_so_BTV.sum(-1, dtype=jnp.int32)
    return jax.lax.psum(own_BT, _IDS) if _ids_are_split() else own_BT


def ids(logits_BTV: jax.Array) -> jax.Array:
    """Those that a device's logits are of, `[V]`."""
    V = logits_BTV.shape[-1]
    return jnp.arange(V) + _first_id(V) if _ids_are_split() else jnp.arange(V)


def _alone() -> bool:
    return jax.sharding.get_abstract_mesh().size <= 1  # 0 where no mesh is set


def _ids_are_split() -> bool:
    return jax.sharding.get_abstract_mesh().shape.get(_IDS, 1) > 1


def _first_id(V: int) -> jax.Array:
    return V * jax.lax.axis_index(_IDS)
