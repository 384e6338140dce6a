"""Sharding and memory of the training state, without compiling."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from jax.sharding import PartitionSpec
from jax.tree_util import keystr, tree_leaves_with_path
from rich.table import Table

from experiment.config import ExperimentConfig
from model.axes import RULES, TOKENS
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
