"""Attention on an NVIDIA GPU: FlashAttention-2 (2307.08691) in Pallas for Triton.

JAX's kernel (`jax.experimental.pallas.ops.gpu.attention`) has neither grouped heads, nor windows,
nor values narrower than keys, nor rows of any length; cuDNN reads documents and traced windows from
a mask `[T, T]`, and tokamax's kernels for Hopper (`hopper`) need a newer JAX and are not for rings.
This kernel has the loops of JAX's and adds:

- The mask follows from indices, segment ids, and a window that are arrays (`model.mask`).
- A program visits only the range of blocks that can attend, so that later blocks, blocks outside
  the window, and other documents are skipped. XLA finds the ranges before the launch.
- Queries that share a key read it from the same memory, and sum its gradient in registers.
- The forward pass returns the log-sum-exp of a part of the keys, as rings need (`parts`).

Rows are padded to a multiple of the block. In registers, a head consists of one or two tiles whose
widths are powers of two (192 = 128 + 64); other widths are padded. Under `vmap`, members of a sweep
become a dimension of the grid, so that they share one launch.

The kernels compile for GPUs of compute capability 8.0 to 10.0, and Pallas' interpreter tests them.
No GPU was available to run or tune them. `model.kernels.check` compares them before training.

Additional shape letters: X query blocks, Y key blocks, W width of a tile.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas.triton import CompilerParams, load, store

from ropewalk.model import axes
from ropewalk.model.kernels import parts
from ropewalk.model.kernels.parts import FORBIDDEN, Parts, Shard
from ropewalk.model.mask import is_visible

MAX_WIDTH = 256
DTYPES = ("bfloat16", "float16", "float32")

# Tokens of a program's own block, tokens that a step of its loop loads, and steps that are loaded
# ahead. The first that fits is taken: with its loads in shared memory, and with its sums in the
# registers of 4 warps (up to `MAX_TOTALS`) or 8.
BLOCKS = (
    (128, 64, 3),
    (64, 64, 2),
    (64, 32, 2),
    (32, 32, 2),
    (32, 16, 2),
    (16, 16, 2),
    (16, 16, 1),
)
MAX_TOTALS = 64 * 128
# KiB of shared memory for the loads of a program, somewhat less than a chip has: 227 with compute
# capability 9.0 and 10.0, 163 with 8.0, and 99 with 8.6, 8.9 and 12.0.
BLOCK_KIB = {"H100": 220, "H200": 220, "B200": 220, "A100": 156}
LEAST_BLOCK_KIB = 92

# Tests without a GPU set True, which runs the kernels as plain XLA.
INTERPRET = False

F32 = jnp.float32
LOG2_E = math.log2(math.e)  # logits are in units of log(2), because GPUs compute powers of two


class Blocks(NamedTuple):
    """Tokens of a query block and of a key block, and parameters of Triton's compiler."""

    queries: int
    keys: int
    warps: int
    stages: int


class Side(NamedTuple):
    """All that a kernel reads about queries, or about keys.

    Attributes:
      shard: indices `[T]` and segment ids `[B, T]`.
      tensors: `[B, T, heads, H]`: queries and the gradient of the output, or keys and values.
      numbers: float32 `[B, heads, T]`: log-sum-exp and shift (`parts.Parts`), or nothing.
    """

    shard: Shard
    tensors: tuple
    numbers: tuple = ()


def _forward(q_BTNH, k_BSKH, v_BSKU, queries: Shard, keys: Shard, window):
    T, N, U = *q_BTNH.shape[1:3], v_BSKU.shape[3]
    blocks = _choose_blocks(q_BTNH, v_BSKU)[0]
    by_query, by_key = Side(queries, (q_BTNH,)), Side(keys, (k_BSKH, v_BSKU))
    shapes = [((N, U), v_BSKU.dtype), ((N,), F32)]
    out_BTNU, lse_BNT = _launch(_forward_kernel, blocks, by_query, by_key, window, shapes)
    return out_BTNU[:, :T, :, :U], jnp.moveaxis(lse_BNT, 1, 2)[:, :T]


def _backward(
    q_BTNH, k_BSKH, v_BSKU, queries: Shard, keys: Shard, window, lse_BTN, shift_BTN, g_BTNU
):
    numbers = tuple(jnp.moveaxis(x, 1, 2) for x in (lse_BTN, shift_BTN))
    by_query = Side(queries, (q_BTNH, g_BTNU.astype(v_BSKU.dtype)), numbers)
    by_key = Side(keys, (k_BSKH, v_BSKU))

    def gradients(kernel, blocks, *inputs):
        shapes = [(x.shape[2:], x.dtype) for x in inputs]
        padded = _launch(kernel, blocks, by_query, by_key, window, shapes)
        return [dx[:, : x.shape[1], :, : x.shape[3]] for dx, x in zip(padded, inputs, strict=True)]

    _, dq_blocks, dkv_blocks = _choose_blocks(q_BTNH, v_BSKU)
    (dq_BTNH,) = gradients(_dq_kernel, dq_blocks, q_BTNH)
    dk_BSKH, dv_BSKU = gradients(_dkv_kernel, dkv_blocks, k_BSKH, v_BSKU)
    return dq_BTNH, dk_BSKH, dv_BSKU


PARTS = Parts(_forward, _backward)
attention = functools.partial(parts.attention, parts=PARTS)  # for heads up to `MAX_WIDTH`


def _forward_kernel(range_ref, window_ref, by_query: Side, by_key: Side, out_ref, lse_ref, length):
    """Compute the output and the log-sum-exp of one block of queries of one head.

    Here and below, the first side is one block of the program's own, and the other side is a full
    row, of which the program visits the blocks of `length` tokens in `range_ref`.
    """
    (q_ref,), (k_ref, v_ref) = by_query.tensors, by_key.tensors
    queries, q_tiles = _column(by_query.shard), _load(q_ref, slice(None))
    T, U = out_ref.shape

    def add(y, carry):
        out_tiles, top_T1, total_T1 = carry
        rows = pl.ds(y * length, length)
        logits_TS = _dot(q_tiles, _load(k_ref, rows))
        logits_TS = _hide(logits_TS, queries, _row(by_key.shard, rows), window_ref)
        new_top_T1 = jnp.maximum(top_T1, logits_TS.max(axis=1)[:, None])
        weights_TS = jnp.exp2(logits_TS - new_top_T1)
        shrink_T1 = jnp.exp2(top_T1 - new_top_T1)
        total_T1 = total_T1 * shrink_T1 + weights_TS.sum(axis=1)[:, None]
        out_tiles = [out_TW * shrink_T1 for out_TW in out_tiles]
        return _add_dots(out_tiles, weights_TS, _load(v_ref, rows)), new_top_T1, total_T1

    initial = (_zeros(T, U), jnp.full((T, 1), FORBIDDEN, F32), jnp.zeros((T, 1), F32))
    out_tiles, top_T1, total_T1 = _visit(range_ref, add, initial)
    attends_T1 = ~(top_T1 <= FORBIDDEN / 2)  # NaN attends, so that it reaches the loss
    total_T1 = jnp.where(attends_T1, total_T1, 1)
    _store(out_ref, [jnp.where(attends_T1, out_TW / total_T1, 0) for out_TW in out_tiles])
    lse_T1 = (top_T1 + jnp.log2(total_T1)) / LOG2_E
    lse_ref[...] = jnp.where(attends_T1, lse_T1, FORBIDDEN).reshape(T)


def _dq_kernel(range_ref, window_ref, by_query: Side, by_key: Side, dq_ref, length):
    """Compute the gradient of one block of queries of one head."""
    (q_ref, g_ref), (k_ref, v_ref) = by_query.tensors, by_key.tensors
    q_tiles, g_tiles = _load(q_ref, slice(None)), _load(g_ref, slice(None))
    lse_T1, shift_T1 = (ref[...][:, None] for ref in by_query.numbers)
    queries = _column(by_query.shard)

    def add(y, dq_tiles):
        rows = pl.ds(y * length, length)
        k_tiles, v_tiles = _load(k_ref, rows), _load(v_ref, rows)
        logits_TS = _hide(_dot(q_tiles, k_tiles), queries, _row(by_key.shard, rows), window_ref)
        weights_TS = jnp.exp2(logits_TS - lse_T1 * LOG2_E)
        dlogits_TS = weights_TS * (_dot(g_tiles, v_tiles) - shift_T1)
        return _add_dots(dq_tiles, dlogits_TS, k_tiles)

    _store(dq_ref, _visit(range_ref, add, _zeros(*dq_ref.shape)))


def _dkv_kernel(range_ref, window_ref, by_key: Side, by_query: Side, dk_ref, dv_ref, length):
    """Compute the gradients of one block of keys and values, over all queries that share them."""
    (k_ref, v_ref), (q_ref, g_ref) = by_key.tensors, by_query.tensors
    k_tiles, v_tiles = _load(k_ref, slice(None)), _load(v_ref, slice(None))
    keys = _column(by_key.shard)

    def one_head(head, totals):
        def add(x, totals):
            dk_tiles, dv_tiles = totals
            rows = pl.ds(x * length, length)
            q_tiles, g_tiles = _load(q_ref, rows, head), _load(g_ref, rows, head)
            lse_1T, shift_1T = (ref[head, rows][None] for ref in by_query.numbers)
            logits_ST = _hide(_dot(k_tiles, q_tiles), _row(by_query.shard, rows), keys, window_ref)
            weights_ST = jnp.exp2(logits_ST - lse_1T * LOG2_E)
            dlogits_ST = weights_ST * (_dot(v_tiles, g_tiles) - shift_1T)
            dk_tiles = _add_dots(dk_tiles, dlogits_ST, q_tiles)
            return dk_tiles, _add_dots(dv_tiles, weights_ST, g_tiles)

        return _visit(range_ref, add, totals)

    totals = (_zeros(*dk_ref.shape), _zeros(*dv_ref.shape))
    dk_tiles, dv_tiles = jax.lax.fori_loop(0, q_ref.shape[1], one_head, totals)
    _store(dk_ref, dk_tiles)
    _store(dv_ref, dv_tiles)


def _visit(range_ref, add: Callable, initial):
    return jax.lax.fori_loop(range_ref[0], range_ref[1], add, initial)


def _hide(logits, queries: Shard, keys: Shard, window_ref):
    """Return logits in units of log(2), `FORBIDDEN` where masked; shards have an axis of size 1."""
    visible = is_visible(queries.indices_T - keys.indices_T, window_ref[0])
    visible &= queries.segment_ids_BT == keys.segment_ids_BT
    return jnp.where(visible, logits * LOG2_E, FORBIDDEN)


def _column(shard: Shard) -> Shard:
    return Shard(*(ref[...][:, None] for ref in shard))


def _row(shard: Shard, rows) -> Shard:
    return Shard(*(ref[rows][None] for ref in shard))


def _tiles(width: int) -> list[tuple[int, int]]:
    """Return the start and the width of each tile of a head: powers of two, at least 16.

    The tiles of a width that has no such sum end beyond it.
    """
    first = max(16, 1 << (width.bit_length() - 1))
    rest = max(0, width - first)
    second = max(16, pl.next_power_of_2(rest)) if rest else 0
    if first == second:
        return [(0, 2 * first)]
    return [(0, first), (first, second)] if second else [(0, first)]


def _pad_width(width: int) -> int:
    return sum(_tiles(width)[-1])


def _load(ref, *index) -> list[jax.Array]:
    """Return the tiles `[tokens, W]` of one head."""
    tiles = _tiles(ref.shape[-1])
    return [load(ref.at[(*index, pl.ds(start, width))]) for start, width in tiles]


def _store(ref, tiles: list[jax.Array]) -> None:
    for (start, width), tile in zip(_tiles(ref.shape[-1]), tiles, strict=True):
        store(ref.at[:, pl.ds(start, width)], tile.astype(ref.dtype))


def _zeros(rows: int, width: int) -> list[jax.Array]:
    return [jnp.zeros((rows, tile_width), F32) for _, tile_width in _tiles(width)]


def _dot(tiles, other_tiles) -> jax.Array:
    """Return the products of all pairs of rows, `[rows, other rows]`."""
    products = [_contract(x, y, 1) for x, y in zip(tiles, other_tiles, strict=True)]
    return functools.reduce(jnp.add, products)


def _add_dots(totals, weights, tiles) -> list[jax.Array]:
    """Add the weighted sum of rows to the tiles of a total."""
    pairs = zip(totals, tiles, strict=True)
    return [total + _contract(weights.astype(tile.dtype), tile, 0) for total, tile in pairs]


def _contract(x, y, axis: int) -> jax.Array:
    """Return the float32 product that sums over the last axis of x and over `axis` of y."""
    config: Any = jax.config  # its attributes have no types
    precision = None  # TF32, if the inputs are float32
    if x.dtype == F32 and config.jax_default_matmul_precision == "highest" and not INTERPRET:
        # Three products in TF32. Exact ones use no matrix units, and take a minute to compile.
        precision = jax.lax.DotAlgorithmPreset.TF32_TF32_F32_X3
    dimensions = (((1,), (axis,)), ((), ()))
    return jax.lax.dot_general(x, y, dimensions, precision=precision, preferred_element_type=F32)


def block_memory() -> int:
    """Return the bytes of shared memory that the loads of a program may take."""
    kind = axes.device_kind() or jax.devices()[0].device_kind
    return 1024 * next((kib for name, kib in BLOCK_KIB.items() if name in kind), LEAST_BLOCK_KIB)


def _choose_blocks(q_BTNH, v_BSKU) -> tuple[Blocks, Blocks, Blocks]:
    """Return the blocks of the forward pass, of dq, and of dk and dv."""
    limit = block_memory() // q_BTNH.dtype.itemsize
    H, U = (_pad_width(x.shape[3]) for x in (q_BTNH, v_BSKU))

    def largest(own_width: int, total_width: int) -> tuple[int, int, int, int]:
        """Return a program's own tokens, those of a step of its loop, and Triton's parameters."""
        for fixed, step, stages in BLOCKS:
            memory = fixed * own_width + stages * step * (H + U) + fixed * step
            if memory <= limit and fixed * total_width <= 3 * MAX_TOTALS:
                break
        return fixed, step, 8 if fixed * total_width > MAX_TOTALS else 4, stages

    fixed, step, *rest = largest(H + U, H + U)
    dkv_blocks = Blocks(step, fixed, *rest)
    return Blocks(*largest(H, U)), Blocks(*largest(H + U, H)), dkv_blocks


def _launch(kernel, blocks: Blocks, by_query: Side, by_key: Side, window, shapes) -> list:
    """Run a kernel over all blocks of one side, in one launch.

    Args:
      kernel: of this file. `_dkv_kernel` runs for each block of keys, others for one of queries.
      blocks: lengths of blocks.
      by_query, by_key: arrays before padding.
      window: int32 scalar.
      shapes: for each output the heads and the width, or the heads, and the dtype.

    Returns:
      Outputs `[B, T, heads, width]` or `[B, heads, T]`, with their padding.
    """
    queries_X = parts.cut_queries(by_query.shard, blocks.queries)
    keys_Y = parts.cut_keys(by_key.shard, blocks.keys)
    # A large log-sum-exp makes weights of padding 0.
    fixed, other = _pad(by_query, queries_X, -FORBIDDEN), _pad(by_key, keys_Y)
    fixed_length, length = blocks.queries, blocks.keys
    B, _, N, _ = by_query.tensors[0].shape
    heads, G = N, N // by_key.tensors[0].shape[2]
    of_keys = kernel is _dkv_kernel
    if of_keys:
        fixed, other, fixed_length, length, heads = other, fixed, length, fixed_length, heads // G
    T, S = (side.shard.indices_T.shape[0] for side in (fixed, other))

    # The blocks with the most work start first: the last queries, the first keys.
    def block(x):
        return x if of_keys else T // fixed_length - 1 - x

    of_block = functools.partial(_spec, fixed_length, None, block, lambda n: n)
    # Either all heads that share a key, or that key.
    size, first = (G, lambda n: n) if of_keys else (None, lambda n: n // G)
    of_row = functools.partial(_spec, S, size, lambda x: 0, first)
    out_shapes = [
        jax.ShapeDtypeStruct(
            (B, N, T) if len(shape) == 1 else (B, T, shape[0], _pad_width(shape[1])), dtype
        )
        for shape, dtype in shapes
    ]
    return pl.pallas_call(
        functools.partial(kernel, length=length),
        grid=(T // fixed_length, heads, B),
        in_specs=[
            pl.BlockSpec((None, None, 2), lambda x, n, b: (b, block(x), 0)),
            pl.BlockSpec((1,), lambda x, n, b: (0,)),
            jax.tree.map(of_block, fixed),
            jax.tree.map(of_row, other),
        ],
        out_specs=[of_block(x) for x in out_shapes],
        out_shape=out_shapes,
        compiler_params=CompilerParams(num_warps=blocks.warps, num_stages=blocks.stages),
        cost_estimate=_cost(by_query, fixed, other, out_shapes, length),
        interpret=INTERPRET,
        name=f"attention{kernel.__name__}",
    )(_ranges(queries_X, keys_Y, window, of_keys), jnp.reshape(window, 1), fixed, other)


def _spec(length: int, heads: int | None, block: Callable, head: Callable, array) -> pl.BlockSpec:
    """Return the part of an array that a program reads or writes.

    Args:
      length, heads: numbers of tokens and of heads; None is one head, without an axis.
      block, head: functions from the program's index in the grid to those of its tokens and heads.
      array: indices `[T]`, segment ids `[B, T]`, numbers `[B, N, T]`, or tensors `[B, T, N, H]`.
    """
    axes = ("T", "BT", "BNT", "BTNH")[array.ndim - 1]
    sizes = {"B": None, "T": length, "N": heads, "H": array.shape[-1]}

    def index(x, n, b):
        places = {"B": b, "T": block(x), "N": head(n), "H": 0}
        return tuple(places[axis] for axis in axes)

    return pl.BlockSpec(tuple(sizes[axis] for axis in axes), index)


def _cost(by_query: Side, fixed: Side, other: Side, out_shapes, length: int) -> pl.CostEstimate:
    """Return the cost of a launch if all blocks on and below the diagonal are visited."""
    B, T, N, _ = by_query.tensors[0].shape
    num_pairs = B * N * T * (other.shard.indices_T.shape[0] + length) // 2
    # Products of q with k, of the gradient with v, and one for each output.
    widths = [x.shape[3] for x in (*by_query.tensors, *out_shapes) if x.ndim == 4]
    return pl.CostEstimate(
        flops=2 * num_pairs * sum(widths),
        transcendentals=num_pairs,
        bytes_accessed=sum(
            x.size * x.dtype.itemsize for x in jax.tree.leaves((fixed, other, out_shapes))
        ),
    )


def _ranges(queries_X: Shard, keys_Y: Shard, window, of_keys: bool) -> jax.Array:
    """Return the first and the end of the blocks that each block visits, int32 `[B, blocks, 2]`."""

    def of_row(ids_XT, key_ids_YS):
        queries, keys = Shard(queries_X[0], ids_XT[:, None]), Shard(keys_Y[0], key_ids_YS[:, None])
        block_mask_XY = parts.block_mask(queries, keys, window)
        ranges = parts.block_ranges(block_mask_XY.T if of_keys else block_mask_XY)
        return jnp.stack(ranges, axis=-1)

    return jax.vmap(of_row, in_axes=1)(queries_X.segment_ids_BT, keys_Y.segment_ids_BT)


def _pad(side: Side, shard_X: Shard, lse: float = 0) -> Side:
    """Pad rows to full blocks and heads to full tiles, with 0 except for the log-sum-exp."""
    indices_XT, ids_XBT = shard_X
    B = ids_XBT.shape[1]
    shard = Shard(indices_XT.reshape(-1), jnp.moveaxis(ids_XBT, 0, 1).reshape(B, -1))
    extra = indices_XT.size - side.shard.indices_T.shape[0]
    tensors = tuple(
        jnp.pad(x, ((0, 0), (0, extra), (0, 0), (0, _pad_width(x.shape[3]) - x.shape[3])))
        for x in side.tensors
    )
    numbers = tuple(
        jnp.pad(x, ((0, 0), (0, 0), (0, extra)), constant_values=value)
        for x, value in zip(side.numbers, (lse, 0), strict=False)
    )
    return Side(shard, tensors, numbers)
