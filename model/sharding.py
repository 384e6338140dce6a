"""Shardings of parameters, optimizer states, and batches, from the table in `model.axes`."""

from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from model.axes import RULES, TOKENS
from model.config import Architecture
from model.transformer import Params, parameter_axes


def parameter_shardings(config: Architecture, mesh: Mesh, *, members: bool) -> Params:
    """Return the sharding of every parameter; `members` adds the leading axis of a sweep."""
    leading = ("sweep",) if members else ()

    def sharding(axes: tuple[str | None, ...]) -> NamedSharding:
        return NamedSharding(mesh, PartitionSpec(*leading, *(RULES[axis] for axis in axes)))

    return jax.tree.map(sharding, parameter_axes(config), is_leaf=lambda x: isinstance(x, tuple))


def like_parameters(shardings: Params, tree: Any, mesh: Mesh, *, members: bool) -> Any:
    """Return shardings of `tree` (an optimizer state).

    Subtrees with the structure of the parameters get their shardings. Other leaves are replicated
    on every device of a member.
    """
    structure = jax.tree.structure(shardings)
    replicated = NamedSharding(mesh, PartitionSpec(*(("sweep",) if members else ())))

    def is_params(node) -> bool:
        return jax.tree.structure(node) == structure

    return jax.tree.map(
        lambda node: shardings if is_params(node) else replicated, tree, is_leaf=is_params
    )


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Return the sharding of a batch: rows over `data` and `fsdp`, tokens over `sequence`."""
    return NamedSharding(mesh, TOKENS)
