"""Sharding and memory of the training state, and an estimate of activations, without compiling."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax.sharding import PartitionSpec
from jax.tree_util import keystr, tree_leaves_with_path
from rich.table import Table

from experiment.config import ExperimentConfig
from model.axes import RULES, TOKENS
from model.config import ModelConfig
from model.loss import tokens_at_once
from model.transformer import parameter_axes
from training.members import abstract_state


class Leaf(NamedTuple):
    """An array of the training state.

    Attributes:
      name: path in the tree, such as `params.blocks.mlp.gate`.
      shape: global shape; a sweep's members are the first axis.
      axes: logical axes, as in RULES.
      spec: mesh axes that split each axis.
      num_bytes: of the global array.
      device_bytes: of one device's shard.
    """

    name: str
    shape: tuple[int, ...]
    axes: tuple[str | None, ...]
    spec: PartitionSpec
    num_bytes: int
    device_bytes: int


def leaves(config: ExperimentConfig, mesh: Any, num_members: int) -> list[Leaf]:
    """Return the arrays of parameters and optimizer state on a mesh, which may be abstract."""
    is_axes = lambda node: isinstance(node, tuple)  # noqa: E731
    axes_of = {
        _name(path): axes
        for path, axes in tree_leaves_with_path(parameter_axes(config.model), is_leaf=is_axes)
    }
    result = []
    for path, array in tree_leaves_with_path(abstract_state(config, num_members, mesh)):
        name, size = _name(path), array.dtype.itemsize
        # Moments have the axes of their parameter; their path ends in its path.
        axes = next((axes for known, axes in axes_of.items() if name.endswith(f".{known}")), ())
        result.append(
            Leaf(
                name=name,
                shape=array.shape,
                axes=(*["members"] * (array.ndim - len(axes)), *axes),
                spec=array.sharding.spec,
                num_bytes=array.size * size,
                device_bytes=math.prod(array.sharding.shard_shape(array.shape)) * size,
            )
        )
    return result


def _name(path) -> str:
    return keystr(path, simple=True, separator=".")


def activations(
    config: ExperimentConfig, sizes: dict[str, int], num_members: int, device_kind: str = ""
) -> dict[str, int]:
    """Estimate the bytes of activations on a device while it trains on one microbatch.

    The estimate counts the arrays of the model's equations in the compute dtype. XLA may fuse some
    of them away, or copy others.

    Args:
      config: `model.remat` decides which arrays a layer saves.
      sizes: number of devices along each axis of the mesh.
      num_members: of a sweep; the members of one device add up.
      device_kind: of the chip; its memory limits the logits that exist at once.

    Returns:
      Bytes by purpose.
    """
    model, tensor = config.model, sizes["tensor"]
    rows = config.data.batch_size // config.train.accumulate // (sizes["data"] * sizes["fsdp"])
    tokens = rows * config.data.context_length // sizes["sequence"]
    width = jnp.dtype(model.compute_dtype).itemsize
    projections, between = _layer_features(model)
    products = model.embed_dim + projections // tensor
    everything = 2 * model.embed_dim + (projections + between) // tensor
    mlp = (2 + model.mlp_gate) * model.mlp_dim // tensor
    inputs = 0 if model.remat.startswith("offload") else model.embed_dim
    saved = {"dots": products, "none": products + everything}.get(model.remat, 0)
    if model.remat == "qkv":  # queries, keys, values, and attention's output
        value_dim = model.head_dim if model.mla is None else model.mla.v_head_dim
        heads = model.num_heads * model.head_dim + model.kv_heads * (model.head_dim + value_dim)
        saved = model.embed_dim + heads // tensor
    vocab_size = model.vocab_size // tensor
    chunk = rows * model.loss_chunk if model.loss_chunk else tokens_at_once(vocab_size, device_kind)
    logits = min(tokens, chunk) * vocab_size
    # Heads with the same frequencies share their cosines.
    rotated = model.position_table(2).logit_scale.size * (model.rope_head_dim // 2)
    members_here = num_members // sizes["sweep"]
    estimate = {
        f"saved by {model.num_layers} layers (remat={model.remat})": (
            model.num_layers * tokens * (inputs + saved) * width
        ),
        "cosines and sines": 2 * 4 * tokens * rotated,
        # The recomputed forward pass, and gradients of the MLP's arrays, of which XLA has most at
        # once. The logits are gone when the first layer begins.
        "one layer, or logits": max(tokens * (products + everything + mlp) * width, 2 * 4 * logits),
    }
    return {name: members_here * num_bytes for name, num_bytes in estimate.items()}


def _layer_features(model: ModelConfig) -> tuple[int, int]:
    """Return features per token of a layer's split products, and of the arrays between them."""
    N, K, H, F = model.num_heads, model.kv_heads, model.head_dim, model.mlp_dim
    value_dim = H if model.mla is None else model.mla.v_head_dim
    queries_keys = (N + K) * H
    products = queries_keys + K * value_dim + (1 + model.mlp_gate) * F
    if model.mla is not None:
        products += model.mla.kv_lora_rank + (model.mla.q_lora_rank or 0)
    # Rotated queries and keys, attention's output, the MLP's gated product.
    return products, queries_keys + N * value_dim + F


def make_table(title: str, left: Sequence[str], right: Sequence[str] = ()) -> Table:
    """Return an empty table: columns of text, then right-aligned columns of numbers."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in left:
        table.add_column(column, overflow="fold")
    for column in right:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def rules_table(sizes: dict[str, int]) -> Table:
    """Return the table of axes and the mesh axes that split them (`model.axes`)."""
    table = make_table("sharding", ("axis of", "is split over", "in parts"))
    split = {f"parameters: {axis}": mesh for axis, mesh in RULES.items() if axis}
    split |= {"a sweep: members": "sweep"}
    split |= dict(zip(("a batch: rows", "a batch: tokens"), TOKENS, strict=True))
    for name, over in split.items():
        over = (over,) if isinstance(over, str) else over or ()
        parts = math.prod(sizes[axis] for axis in over)
        table.add_row(name, " x ".join(over) or "-", str(parts))
    return table


def leaves_table(arrays: Sequence[Leaf]) -> Table:
    """Return the table of the training state, one line per array."""
    columns = ("array", "shape", "axes", "mesh axes"), ("bytes", "on a device")
    table = make_table("training state", *columns)
    for leaf in arrays:
        spec = [*leaf.spec, *[None] * (len(leaf.shape) - len(leaf.spec))]
        table.add_row(
            leaf.name,
            " ".join(map(str, leaf.shape)) or "scalar",
            " ".join(axis or "-" for axis in leaf.axes) or "-",
            " ".join(axis or "-" for axis in spec) or "-",
            amount(leaf.num_bytes),
            amount(leaf.device_bytes),
        )
    return table


def amount(num_bytes: float) -> str:
    """Return bytes in the largest fitting unit, up to TiB."""
    if num_bytes < 1024:
        return f"{num_bytes:.0f} B"
    power = min(4, int(math.log2(num_bytes) / 10))
    return f"{num_bytes / 1024**power:.2f} {'KMGT'[power - 1]}iB"
