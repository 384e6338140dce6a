"""What lies where: `python -m tpu.plan CONFIG --topology v5p:4x4x4 [dotted.field=value ...]`.

Prints each parameter and each part of the optimizer state with its shape, its logical axes, the
mesh axes that split them (`model.axes.RULES`) and its bytes on a device, then what training keeps
on a device in all. Nothing is compiled and no TPU is needed. Parameters and optimizer state are
exact; activations are a rough estimate: tpu.aot compiles the step and knows.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax.sharding import AbstractMesh, PartitionSpec
from jax.tree_util import keystr, tree_leaves_with_path
from rich.console import Console
from rich.table import Table

from configs import find_config
from experiment import overrides
from experiment.config import ExperimentConfig
from experiment.inherit import inherit
from experiment.mesh import mesh_sizes
from model.axes import RULES, TOKENS
from model.config import ModelConfig
from model.loss import tokens_at_once
from model.transformer import describe_size, parameter_axes
from settings.commands import Parser
from tpu import topology as topology_lib
from training.members import abstract_state


class Leaf(NamedTuple):
    """An array of the training state.

    Attributes:
      name: path in the tree, such as `params.blocks.mlp.gate`.
      shape: of the whole array; a sweep's members lead.
      axes: what each axis is, as in RULES.
      spec: mesh axes over which each lies.
      num_bytes: of the whole array.
      device_bytes: of one device's part.
    """

    name: str
    shape: tuple[int, ...]
    axes: tuple[str | None, ...]
    spec: PartitionSpec
    num_bytes: int
    device_bytes: int


def leaves(config: ExperimentConfig, mesh: Any, num_members: int) -> list[Leaf]:
    """Parameters and optimizer state on a mesh; an abstract mesh will do."""
    is_axes = lambda node: isinstance(node, tuple)  # noqa: E731
    axes_of = {
        _name(path): axes
        for path, axes in tree_leaves_with_path(parameter_axes(config.model), is_leaf=is_axes)
    }
    found = []
    for path, array in tree_leaves_with_path(abstract_state(config, num_members, mesh)):
        name, size = _name(path), array.dtype.itemsize
        # Moments lie as their parameter does, whose path theirs ends in.
        axes = next((axes for known, axes in axes_of.items() if name.endswith(f".{known}")), ())
        found.append(
            Leaf(
                name=name,
                shape=array.shape,
                axes=(*["members"] * (array.ndim - len(axes)), *axes),
                spec=array.sharding.spec,
                num_bytes=array.size * size,
                device_bytes=math.prod(array.sharding.shard_shape(array.shape)) * size,
            )
        )
    return found


def _name(path) -> str:
    return keystr(path, simple=True, separator=".")


def activations(
    config: ExperimentConfig, sizes: dict[str, int], num_members: int, device_kind: str = ""
) -> dict[str, int]:
    """Roughly, the bytes of activations on a device while one microbatch is trained on.

    Counted are the arrays of the model's equations in the compute dtype; what XLA fuses away or
    copies is not known here.

    Args:
      config: `model.remat` decides what a layer keeps.
      sizes: devices along each axis of the mesh.
      num_members: of a sweep; those of one device add up.
      device_kind: of the chip; of many tokens some have their logits at once, by its memory.

    Returns:
      Bytes by what they are for.
    """
    model, tensor = config.model, sizes["tensor"]
    rows = config.data.batch_size // config.train.accumulate // (sizes["data"] * sizes["fsdp"])
    tokens = rows * config.data.context_length // sizes["sequence"]
    width = jnp.dtype(model.compute_dtype).itemsize
    projections, others = _layer_features(model)
    products = model.embed_dim + projections // tensor
    everything = 2 * model.embed_dim + (projections + others) // tensor
    inputs = 0 if model.remat.startswith("offload") else model.embed_dim
    kept = {"dots": products, "none": products + everything}.get(model.remat, 0)
    if model.remat == "qkv":  # queries, keys, values, and attention's output
        value_dim = model.head_dim if model.mla is None else model.mla.v_head_dim
        heads = model.num_heads * model.head_dim + model.kv_heads * (model.head_dim + value_dim)
        kept = model.embed_dim + heads // tensor
    vocab_size = model.vocab_size // tensor
    chunk = rows * model.loss_chunk if model.loss_chunk else tokens_at_once(vocab_size, device_kind)
    logits = min(tokens, chunk) * vocab_size
    # The cosines of heads that rotate alike are kept once.
    rotated = model.rotary_table(2).logit_scale.size * (model.rope_head_dim // 2)
    here = num_members // sizes["sweep"]
    estimate = {
        f"kept of {model.num_layers} layers (remat={model.remat})": (
            model.num_layers * tokens * (inputs + kept) * width
        ),
        # Forward once more, and a gradient for each array.
        "one layer at work": 2 * tokens * (products + everything) * width,
        "cosines and sines": 2 * 4 * tokens * rotated,
        "logits and their gradient": 2 * 4 * logits,
    }
    return {name: here * num_bytes for name, num_bytes in estimate.items()}


def _layer_features(model: ModelConfig) -> tuple[int, int]:
    """Features per token of a layer's split matrix products, and of what lies between them."""
    N, K, H, F = model.num_heads, model.kv_heads, model.head_dim, model.mlp_dim
    value_dim = H if model.mla is None else model.mla.v_head_dim
    queries_keys = (N + K) * H
    products = queries_keys + K * value_dim + 2 * F
    if model.mla is not None:
        products += model.mla.kv_lora_rank + (model.mla.q_lora_rank or 0)
    # Rotated queries and keys, attention's output, the MLP's gated product.
    return products, queries_keys + N * value_dim + F


def make_table(title: str, left: Sequence[str], right: Sequence[str] = ()) -> Table:
    """An empty table without lines: words on the left, numbers on the right."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in left:
        table.add_column(column, overflow="fold")
    for column in right:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def rules_table(sizes: dict[str, int]) -> Table:
    """What shards over what: `model.axes`, with the sizes of this mesh."""
    table = make_table("what lies over what", ("axis of", "is split over", "in parts"))
    split = {f"parameters: {axis}": mesh for axis, mesh in RULES.items() if axis}
    split |= {"a sweep: members": "sweep"}
    split |= dict(zip(("a batch: rows", "a batch: tokens"), TOKENS, strict=True))
    for name, over in split.items():
        over = (over,) if isinstance(over, str) else over or ()
        parts = math.prod(sizes[axis] for axis in over)
        table.add_row(name, " x ".join(over) or "-", str(parts))
    return table


def leaves_table(found: Sequence[Leaf]) -> Table:
    """A line for each array."""
    columns = ("array", "shape", "axes", "mesh axes"), ("bytes", "on a device")
    table = make_table("training state", *columns)
    for leaf in found:
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
    """Bytes in the unit that suits them."""
    if num_bytes < 1024:
        return f"{num_bytes:.0f} B"
    power = min(4, int(math.log2(num_bytes) / 10))
    return f"{num_bytes / 1024**power:.2f} {'KMGT'[power - 1]}iB"


def command_line(program: str, description: str | None) -> Parser:
    """What tpu.plan and tpu.aot take."""
    parser = Parser(
        prog=program,
        description=description,
        epilog=overrides.OVERRIDES_HELP,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("config", metavar="CONFIG", help="a config's name; train.py --help has all")
    parser.add_argument("--topology", required=True, metavar="T", help="v5e:8x8, v5p:4x4x4 ...")
    members = "of a sweep, in one program (%(default)s)"
    parser.add_argument("--members", type=int, default=1, metavar="N", help=members)
    typed = overrides.typed
    parser.add_argument("overrides", nargs="*", type=typed, metavar="dotted.field=value")
    return parser


def main() -> int:
    """Command line; exit status 2 after one line for a user's mistake."""
    parser = command_line("python -m tpu.plan", __doc__)
    arguments = parser.parse_intermixed_args()
    try:
        topology = topology_lib.find(arguments.topology)
        config = inherit(find_config(arguments.config), arguments.overrides)
        sizes = mesh_sizes(config, arguments.members, topology.num_chips)
    except ValueError as error:
        parser.error(str(error))
    mesh = AbstractMesh(tuple(sizes.values()), tuple(sizes))
    found = leaves(config, mesh, arguments.members)
    # As wide as it takes where there is no terminal, so that a file has a line for each array.
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    console.print(f"{config.name} on {topology.name}: {describe_size(config.model)}")
    console.print("mesh: " + ", ".join(f"{axis}={size}" for axis, size in sizes.items()))
    console.print("", rules_table(sizes), "", leaves_table(found), "", sep="\n")
    for part in ("params", "opt_state"):
        own = [leaf for leaf in found if leaf.name.startswith(f"{part}.")]
        total, here = sum(leaf.num_bytes for leaf in own), sum(leaf.device_bytes for leaf in own)
        console.print(f"{part:<44} {amount(total):>12} {amount(here):>12} per device")
    state = sum(leaf.device_bytes for leaf in found)
    gradients = sum(leaf.device_bytes for leaf in found if leaf.name.startswith("params."))
    kind = topology.chip.device_kind
    rough = {"gradients": gradients} | activations(config, sizes, arguments.members, kind)
    for name, num_bytes in rough.items():
        console.print(f"{'about, ' + name:<57} {amount(num_bytes):>12} per device")
    total, memory = state + sum(rough.values()), topology.chip.memory
    console.print(f"{'about, in all':<57} {amount(total):>12} of {amount(memory)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
