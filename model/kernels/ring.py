"""Ring attention (2310.01889): each device holds a shard of every row, and KV shards go round.

Devices along the `sequence` axis keep their queries and pass their KV shard (keys, values and which
tokens they are of) on to the next device by `ppermute`, so that each holds 1 / devices of a row
throughout, in the backward pass too. Shards in row order would leave the last device most of the
causal work; here device d works on the d-th from the front and the d-th from the back of
2 x devices ("zigzag"), and all have the same.
"""

import functools

import jax
import jax.numpy as jnp

from model.kernels.parts import FORBIDDEN, Parts, Shard, cast_gradients, row_shift


def attention(
    q_BTNH, k_BSKH, v_BSKU, segment_ids_BT, window, *, parts: Parts, axis: str
) -> jax.Array:
    """As `model.kernels.attention`, on one device's shard of the rows, inside `shard_map`.

    Args:
      q_BTNH, k_BSKH, v_BSKU, segment_ids_BT: shards in row order; T is even.
      window: int32 scalar.
      parts: the kernel for queries over the keys that are here.
      axis: the mesh axis that splits the rows.

    Returns:
      `[B, T, N, U]`, in row order again.
    """
    num_devices, device = jax.lax.axis_size(axis), jax.lax.axis_index(axis)
    half = q_BTNH.shape[1] // 2
    starts = half * jnp.array([device, 2 * num_devices - 1 - device])
    indices_T = (starts[:, None] + jnp.arange(half)).reshape(-1)
    zigzag = functools.partial(_to_zigzag, axis=axis)
    shard = Shard(indices_T, zigzag(segment_ids_BT))
    out_BTNU = _ring(zigzag(q_BTNH), zigzag(k_BSKH), zigzag(v_BSKU), shard, window, parts, axis)
    return _from_zigzag(out_BTNU, axis=axis)


@functools.partial(jax.custom_vjp, nondiff_argnums=(5, 6))
def _ring(q_BTNH, k_BSKH, v_BSKU, shard: Shard, window, parts: Parts, axis: str) -> jax.Array:
    return _ring_forward(q_BTNH, k_BSKH, v_BSKU, shard, window, parts, axis)[0]


def _ring_forward(q_BTNH, k_BSKH, v_BSKU, shard, window, parts, axis):
    def attend(so_far, kv_shard):
        """Adds what these keys say to what is known so far."""
        (out_BTNU, lse_BTN), (k_BSKH, v_BSKU, keys) = so_far, kv_shard
        part_BTNU, part_BTN = parts.forward(q_BTNH, k_BSKH, v_BSKU, shard, keys, window)
        total_BTN = jnp.logaddexp(lse_BTN, part_BTN)
        old_BTN1, new_BTN1 = (jnp.exp(x - total_BTN)[..., None] for x in (lse_BTN, part_BTN))
        return out_BTNU * old_BTN1 + part_BTNU * new_BTN1, total_BTN

    def step(carry, _):
        so_far, kv_shard = carry
        # Sent on before the work, which does not wait for what arrives.
        arriving = _ppermute(kv_shard, axis)
        return (attend(so_far, kv_shard), arriving), None

    B, T, N, _ = q_BTNH.shape
    nothing = (jnp.zeros((B, T, N, v_BSKU.shape[-1])), jnp.full((B, T, N), FORBIDDEN))
    kv_shard = (k_BSKH, v_BSKU, shard)
    carry = (nothing, kv_shard)
    (so_far, kv_shard), _ = jax.lax.scan(step, carry, length=jax.lax.axis_size(axis) - 1)
    out_BTNU, lse_BTN = attend(so_far, kv_shard)
    out_BTNU = out_BTNU.astype(v_BSKU.dtype)
    return out_BTNU, (q_BTNH, k_BSKH, v_BSKU, shard, window, out_BTNU, lse_BTN)


def _ring_backward(parts, axis, residuals, g_BTNU):
    q_BTNH, k_BSKH, v_BSKU, shard, window, out_BTNU, lse_BTN = residuals
    shift_BTN = row_shift(out_BTNU, g_BTNU)

    def attend(gradients, kv_shard):
        """Adds these keys' part to dq, and this device's queries' part to dk and dv."""
        k_BSKH, v_BSKU, keys = kv_shard
        added = parts.backward(
            q_BTNH, k_BSKH, v_BSKU, shard, keys, window, lse_BTN, shift_BTN, g_BTNU
        )
        return tuple(map(jnp.add, gradients, added))

    def step(carry, _):
        gradients, kv_shard = carry
        arriving = _ppermute(kv_shard, axis)
        dq_BTNH, *kv_gradients = attend(gradients, kv_shard)
        # Gradients of keys and values travel with them.
        return ((dq_BTNH, *_ppermute(kv_gradients, axis)), arriving), None

    zeros = tuple(jnp.zeros(x.shape, jnp.float32) for x in (q_BTNH, k_BSKH, v_BSKU))
    carry = (zeros, (k_BSKH, v_BSKU, shard))
    (gradients, kv_shard), _ = jax.lax.scan(step, carry, length=jax.lax.axis_size(axis) - 1)
    dq_BTNH, *kv_gradients = attend(gradients, kv_shard)
    dk_BSKH, dv_BSKU = _ppermute(kv_gradients, axis)  # and home
    return cast_gradients((dq_BTNH, dk_BSKH, dv_BSKU), (q_BTNH, k_BSKH, v_BSKU))


_ring.defvjp(_ring_forward, _ring_backward)


def _ppermute(tree, axis: str):
    """Sends arrays on to the next device of the ring, and the last one's to the first."""
    num_devices = jax.lax.axis_size(axis)
    around = [(device, (device + 1) % num_devices) for device in range(num_devices)]
    return jax.tree.map(lambda x: jax.lax.ppermute(x, axis, around), tree)


def _owners(axis: str) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Who works on the first and the second half of each device's shard: pairs (from, to)."""
    num_devices = jax.lax.axis_size(axis)
    owner = [*range(num_devices), *reversed(range(num_devices))]
    return list(enumerate(owner[0::2])), list(enumerate(owner[1::2]))


def _to_zigzag(x_BT, axis: str):
    """Trades halves, so that device d holds halves d and 2 x devices - 1 - d of the row."""
    halves = jnp.split(x_BT, 2, axis=1)
    first, second = (
        jax.lax.ppermute(half, axis, pairs)
        for half, pairs in zip(halves, _owners(axis), strict=True)
    )
    # An even half was some device's first.
    even = jax.lax.axis_index(axis) % 2 == 0
    return jnp.concatenate([jnp.where(even, first, second), jnp.where(even, second, first)], axis=1)


def _from_zigzag(x_BT, axis: str):
    """The inverse of `_to_zigzag`."""
    low, high = jnp.split(x_BT, 2, axis=1)
    even = jax.lax.axis_index(axis) % 2 == 0
    halves = jnp.where(even, low, high), jnp.where(even, high, low)
    return jnp.concatenate(
        [
            jax.lax.ppermute(half, axis, [(there, here) for here, there in pairs])
            for half, pairs in zip(halves, _owners(axis), strict=True)
        ],
        axis=1,
    )
