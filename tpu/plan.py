"""Sharding and memory: `python -m tpu.plan CONFIG --topology v5p:4x4x4 [dotted.field=value ...]`.

Prints each parameter and each part of the optimizer state with its shape, its logical axes, the
mesh axes that split them (`model.axes.RULES`) and its bytes on a device, then the total of a
device. It compiles nothing and needs no TPU. Parameters and optimizer state are exact; the total is
an estimate, which differs by 10% from the compiled programs of docs/scaling.md on average and by up
to 43%. tpu.aot compiles the step for exact numbers.
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
    from tpu.memory import activations, amount, leaves, leaves_table, rules_table

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
    kind = chips.chip.device_kind
    estimate = {"gradients": gradients} | activations(config, sizes, arguments.members, kind)
    for name, num_bytes in estimate.items():
        console.print(f"{'estimate: ' + name:<57} {amount(num_bytes):>12} per device")
    total, memory = state + sum(estimate.values()), chips.usable_memory
    console.print(f"{'estimate: total':<57} {amount(total):>12} of {amount(memory)}")
    return 0


if __name__ == "__main__":
    exit_with(main)
