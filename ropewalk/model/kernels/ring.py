"""Ring attention (2310.01889): each device stores a shard of every row, and KV shards rotate.

Devices along the `sequence` axis keep their queries and send their KV shard (keys, values, and
their indices and segment ids) to the next device by `ppermute`. Each device stores 1 / devices of a
row throughout, in the backward pass too. With shards in row order the last device would do most of
the causal work. Instead, rows are cut into 2 x devices parts, and device d gets the d-th part from
the front and the d-th from the back ("zigzag"), so that all devices have equal work.
"""

import functools

import jax
import jax.numpy as jnp

from ropewalk.model.kernels.parts import FORBIDDEN, Parts, Shard, attend


def attention(
    q_BTNH, k_BSKH, v_BSKU, segment_ids_BT, window, *, parts: Parts, axis: str
) -> tuple[jax.Array, jax.Array]:
    """Compute `Choice.attend` of one device's shard of the rows, inside `shard_map`.

    Args:
      q_BTNH, k_BSKH, v_BSKU, segment_ids_BT: shards in row order; T is even.
      window: int32 scalar.
      parts: the kernel for queries over one KV shard.
      axis: the mesh axis that splits the rows.

    Returns:
      The output and the log-sum-exp, in row order.
    """
    num_devices, device = jax.lax.axis_size(axis), jax.lax.axis_index(axis)
    half = q_BTNH.shape[1] // 2
    starts = half * jnp.array([device, 2 * num_devices - 1 - device])
    indices_T = (starts[:, None] + jnp.arange(half)).reshape(-1)
    zigzag = functools.partial(_to_zigzag, axis=axis)
    shard = Shard(indices_T, zigzag(segment_ids_BT))
    of_ring = Parts(*(functools.partial(f, parts, axis) for f in (_forward, _backward)))
    arrays = zigzag(q_BTNH), zigzag(k_BSKH), zigzag(v_BSKU)
    outputs: tuple[jax.Array, jax.Array] = attend(of_ring, *arrays, shard, window)
    return _from_zigzag(outputs[0], axis=axis), _from_zigzag(outputs[1], axis=axis)


def _forward(parts: Parts, axis: str, q_BTNH, k_BSKH, v_BSKU, queries: Shard, keys: Shard, window):
    def add(partial, kv_shard):
        """Combine the output over previous shards with the output over this one."""
        (out_BTNU, lse_BTN), (k_BSKH, v_BSKU, keys) = partial, kv_shard
        part_BTNU, part_BTN = parts.forward(q_BTNH, k_BSKH, v_BSKU, queries, keys, window)
        total_BTN = jnp.logaddexp(lse_BTN, part_BTN)
        old_BTN1, new_BTN1 = (jnp.exp(x - total_BTN)[..., None] for x in (lse_BTN, part_BTN))
        return out_BTNU * old_BTN1 + part_BTNU * new_BTN1, total_BTN

    def step(carry, _):
        partial, kv_shard = carry
        # Send first, so that communication and computation overlap.
        next_shard = _ppermute(kv_shard, axis)
        return (add(partial, kv_shard), next_shard), None

    B, T, N, _ = q_BTNH.shape
    empty = (jnp.zeros((B, T, N, v_BSKU.shape[-1])), jnp.full((B, T, N), FORBIDDEN))
    carry = (empty, (k_BSKH, v_BSKU, keys))
    carry, _ = jax.lax.scan(step, carry, length=jax.lax.axis_size(axis) - 1)
    return add(*carry)


def _backward(parts: Parts, axis: str, q_BTNH, k_BSKH, v_BSKU, queries, keys, window, *row):
    def add(gradients, kv_shard):
        """Add the contribution of these keys to dq, and of this device's queries to dk and dv."""
        k_BSKH, v_BSKU, keys = kv_shard
        added = parts.backward(q_BTNH, k_BSKH, v_BSKU, queries, keys, window, *row)
        return tuple(map(jnp.add, gradients, added))

    def step(carry, _):
        gradients, kv_shard = carry
        next_shard = _ppermute(kv_shard, axis)
        dq_BTNH, *kv_gradients = add(gradients, kv_shard)
        # Gradients of keys and values move along with them.
        return ((dq_BTNH, *_ppermute(kv_gradients, axis)), next_shard), None

    zeros = tuple(jnp.zeros(x.shape, jnp.float32) for x in (q_BTNH, k_BSKH, v_BSKU))
    carry = (zeros, (k_BSKH, v_BSKU, keys))
    carry, _ = jax.lax.scan(step, carry, length=jax.lax.axis_size(axis) - 1)
    dq_BTNH, *kv_gradients = add(*carry)
    return dq_BTNH, *_ppermute(kv_gradients, axis)  # back to their own device


def _ppermute(tree, axis: str):
    """Send arrays to the next device of the ring, and from the last device to the first."""
    num_devices = jax.lax.axis_size(axis)
    pairs = [(device, (device + 1) % num_devices) for device in range(num_devices)]
    return jax.tree.map(lambda x: jax.lax.ppermute(x, axis, pairs), tree)


def _owners(axis: str) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return the owners of the first and second half of each device's shard: pairs (from, to)."""
    num_devices = jax.lax.axis_size(axis)
    owner = [*range(num_devices), *reversed(range(num_devices))]
    return list(enumerate(owner[0::2])), list(enumerate(owner[1::2]))


def _to_zigzag(x_BT, axis: str):
    """Exchange halves, so that device d has halves d and 2 x devices - 1 - d of the row."""
    halves = jnp.split(x_BT, 2, axis=1)
    first, second = (
        jax.lax.ppermute(half, axis, pairs)
        for half, pairs in zip(halves, _owners(axis), strict=True)
    )
    # Even halves are first halves of a shard in row order.
    even = jax.lax.axis_index(axis) % 2 == 0
    return jnp.concatenate([jnp.where(even, first, second), jnp.where(even, second, first)], axis=1)


def _from_zigzag(x_BT, axis: str):
    """Invert `_to_zigzag`."""
    low, high = jnp.split(x_BT, 2, axis=1)
    even = jax.lax.axis_index(axis) % 2 == 0
    halves = jnp.where(even, low, high), jnp.where(even, high, low)
    return jnp.concatenate(
        [
            jax.lax.ppermute(half, axis, [(target, source) for source, target in pairs])
            for half, pairs in zip(halves, _owners(axis), strict=True)
        ],
        axis=1,
    )
