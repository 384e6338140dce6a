"""Shardings of parameters and batches, from the table in `model.axes`."""

import jax
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

from ropewalk.model.axes import RULES, TOKENS
from ropewalk.model.config import Architecture
from ropewalk.model.transformer import Params, parameter_axes


def parameter_shardings(
    config: Architecture, mesh: Mesh | AbstractMesh, *, members: bool
) -> Params:
    """Return the sharding of every parameter; `members` adds the leading axis of a sweep."""
    leading = ("sweep",) if members else ()

    def sharding(axes: tuple[str | None, ...]) -> NamedSharding:
        return NamedSharding(mesh, PartitionSpec(*leading, *(RULES[axis] for axis in axes)))

    return jax.tree.map(sharding, parameter_axes(config), is_leaf=lambda x: isinstance(x, tuple))


def replicated(mesh: Mesh | AbstractMesh, *, members: bool) -> NamedSharding:
    """Return the sharding of an array that every device of a member holds in full."""
    return NamedSharding(mesh, PartitionSpec(*(("sweep",) if members else ())))


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Return the sharding of a batch: rows over `data` and `fsdp`, tokens over `sequence`."""
    return NamedSharding(mesh, TOKENS)
