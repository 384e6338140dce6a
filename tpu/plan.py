"""Sharding and memory: `python -m tpu.plan CONFIG --topology v5p:4x4x4 [dotted.field=value ...]`.

Prints each parameter and each part of the optimizer state with its shape, its logical axes, the
mesh axes that split them (`model.axes.RULES`) and its bytes on a device, then the bytes of
parameters, optimizer state and gradients. It compiles nothing, needs no TPU and no libtpu, and does
not know activations: tpu.aot compiles the step, and shows all memory.
"""

import utils.environment  # noqa: F401 - first: it checks that packages are installed

# isort: split
import sys

from rich.console import Console

from tpu.command import command_line, parse
from utils.command_line import exit_with


def main() -> int:
    """Run the command line; exit with status 2 after one line for a user's mistake."""
    parser = command_line("python -m tpu.plan", __doc__)
    arguments, chips, config = parse(parser)
    # Imported late: JAX takes seconds, which help and invalid arguments do not need.
    from jax.sharding import AbstractMesh

    from experiment.mesh import mesh_sizes
    from model.transformer import describe_size
    from tpu.memory import amount, leaves, leaves_table, rules_table

    try:
        sizes = mesh_sizes(config, arguments.members, chips.num_chips, chips.num_hosts)
    except ValueError as error:
        parser.refuse(error)
    mesh = AbstractMesh(tuple(sizes.values()), tuple(sizes))
    arrays = leaves(config, mesh, arguments.members)
    # Wide if there is no terminal, so that a file has one line per array.
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    console.print(f"{config.name} on {chips.name}: {describe_size(config.model)}")
    console.print("mesh: " + ", ".join(f"{axis}={size}" for axis, size in sizes.items()))
    console.print("", rules_table(sizes), "", leaves_table(arrays), "", sep="\n")
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
