"""Sharding and memory: `python -m tpu.plan CONFIG --topology v5p:4x4x4 [dotted.field=value ...]`.

Prints each parameter and each part of the optimizer state with its shape, the mesh axes that split
it (`model.axes.RULES`) and its bytes on a device, then the bytes of parameters, optimizer state and
gradients. It compiles nothing, needs no TPU and no libtpu, and does not know activations: tpu.aot
compiles the step, and shows all memory.
"""

import utils.environment  # noqa: F401 - first: it checks that packages are installed

# isort: split
import math
import sys
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from experiment.config import ExperimentConfig
from tpu.command import amount, command_line, parse
from utils.command_line import exit_with


class Leaf(NamedTuple):
    """An array of the training state.

    Attributes:
      name: path in the tree, such as `params.blocks.mlp.gate`.
      shape: global shape; a sweep's members are the first axis.
      spec: mesh axes that split each axis.
      num_bytes: of the global array.
      device_bytes: of one device's shard.
    """

    name: str
    shape: tuple[int, ...]
    spec: tuple[str | None, ...]
    num_bytes: int
    device_bytes: int


def leaves(config: ExperimentConfig, mesh: Any, num_members: int) -> list[Leaf]:
    """Return the arrays of parameters and optimizer state on a mesh, which may be abstract."""
    from jax.tree_util import keystr, tree_leaves_with_path

    from training.members import abstract_state

    return [
        Leaf(
            name=keystr(path, simple=True, separator="."),
            shape=array.shape,
            spec=tuple(array.sharding.spec),
            num_bytes=array.size * array.dtype.itemsize,
            device_bytes=math.prod(array.sharding.shard_shape(array.shape)) * array.dtype.itemsize,
        )
        for path, array in tree_leaves_with_path(abstract_state(config, num_members, mesh))
    ]


def _table(arrays: list[Leaf]) -> Table:
    table = Table("array", "shape", "mesh axes", "bytes", "on a device", box=None, pad_edge=False)
    for leaf in arrays:
        table.add_row(
            leaf.name,
            " ".join(map(str, leaf.shape)) or "scalar",
            " ".join(axis or "-" for axis in leaf.spec) or "-",
            amount(leaf.num_bytes),
            amount(leaf.device_bytes),
        )
    return table


def main() -> int:
    """Run the command line; exit with status 2 after one line for a user's mistake."""
    parser = command_line("python -m tpu.plan", __doc__)
    arguments, chips, config = parse(parser)
    # Imported late: JAX takes seconds, which help and invalid arguments do not need.
    from jax.sharding import AbstractMesh

    from experiment.mesh import mesh_sizes
    from model.transformer import describe_size

    try:
        sizes = mesh_sizes(config, arguments.members, chips.num_chips, chips.num_hosts)
    except ValueError as error:
        parser.refuse(error)
    arrays = leaves(config, AbstractMesh(tuple(sizes.values()), tuple(sizes)), arguments.members)
    # Wide if there is no terminal, so that a file has one line per array.
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    console.print(f"{config.name} on {chips.name}: {describe_size(config.model)}")
    console.print("mesh: " + ", ".join(f"{axis}={size}" for axis, size in sizes.items()))
    console.print("", _table(arrays), "", sep="\n")
    for part in ("params", "opt_state"):
        of_part = [leaf for leaf in arrays if leaf.name.startswith(f"{part}.")]
        total = sum(leaf.num_bytes for leaf in of_part)
        per_device = sum(leaf.device_bytes for leaf in of_part)
        console.print(f"{part:<44} {amount(total):>12} {amount(per_device):>12} per device")
    state = sum(leaf.device_bytes for leaf in arrays)
    gradients = sum(leaf.device_bytes for leaf in arrays if leaf.name.startswith("params."))
    if config.train.accumulate > 1:  # of a microbatch, and their sum
        gradients *= 2
    console.print(f"{'gradients':<57} {amount(gradients):>12} per device")
    total, memory = state + gradients, chips.usable_memory
    fits = "activations need the rest (tpu.aot)" if total < memory else "does not fit"
    console.print(f"{'without activations':<57} {amount(total):>12} of {amount(memory)}: {fits}")
    return 0


if __name__ == "__main__":
    exit_with(main)
