"""Compiles a config's train step for a TPU slice on a machine that has none.

    python -m tpu.aot paper_2b --topology v5p:4x4x4 [dotted.field=value ...]

The program is train.py's own (`training.step`, the same shardings, the same kernels), compiled by
libtpu (the `tpu` extra) for the slice's chips. Printed are memory per chip and whether it fits,
collectives beside the least that the sharding needs, FLOPs, and an estimate of a step's time:

    compute      FLOPs of the step over the chips' dense bfloat16 peak. Matrix products of the
                 traced program, recomputation included; kernels by the blocks on and below the
                 diagonal of their square
    memory       bytes to and from HBM, read off the compiled program, over HBM bandwidth
    host         bytes to and from the host's memory (remat=offload), over the chip's share of PCIe
    network      bytes each chip receives over its links' bandwidth: a group of chips has the links
                 of as many dimensions of the torus as it spans, two of each that closes to a ring

The step takes the longest of them if they overlap perfectly, and their sum one after another; MFU
is given for both. Neither knows of input, stragglers, or matrix units that are not full, so the sum
is no upper bound: published runs have taken longer. What is expected is fitted to those.
"""

import dataclasses
import json
import math
import os
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies
from jax.extend.core import jaxprs_in_params
from jax.sharding import Mesh
from rich.console import Console
from rich.table import Table

from configs import find_config
from experiment import metrics, overrides
from experiment.config import ExperimentConfig
from experiment.mesh import make_mesh, mesh_sizes
from experiment.stages import split
from model import kernels, sharding
from tpu import topology as topology_lib
from tpu.hlo import HBM, HOST, Collective, Program
from tpu.plan import amount, command_line, make_table
from tpu.topology import Chip, Topology
from training import compiling
from training.members import abstract_state, member_arrays, shardings_of
from training.step import compile_step


class Report(NamedTuple):
    """What is known of a step, per chip unless it says otherwise.

    Attributes:
      attention: the kernel, and what keeps a faster one away, as `train.py` says it.
      arguments, code: bytes of HBM: training state and batch, the program; None if it does not fit.
      peak: bytes of HBM in use at once at most, arguments included; None if it does not fit.
      problem: libtpu's words if it does not fit, else None.
      collectives: of the compiled program.
      bound: wire bytes that the sharding needs at least, by kind.
      flops: executed, recomputation included.
      model_flops: as train.py counts them for MFU.
      memory_traffic, host_traffic: bytes to and from HBM, and the host's memory.
      seconds: at least, for compute, memory, network and host each.
      compile_seconds: of libtpu.
    """

    attention: str
    arguments: int | None
    code: int | None
    peak: int | None
    problem: str | None
    collectives: list[Collective]
    bound: dict[str, float]
    flops: float
    model_flops: float
    memory_traffic: float
    host_traffic: float
    seconds: dict[str, float]
    compile_seconds: float

    @property
    def received(self) -> float:
        """Bytes that a chip receives in all."""
        return sum(one.wire_bytes for one in self.collectives)

    @property
    def expected(self) -> float:
        """Seconds of a step, as published runs went."""
        return expected(self.seconds)

    def fits(self, topology: Topology) -> bool:
        """Whether a chip of the slice holds the step."""
        # libtpu refuses what does not fit, by what it leaves of the memory to programs. That all
        # temporaries together are more says nothing: they need not live at the same time.
        return self.peak is not None and self.peak <= topology.chip.memory


# Of the least time of compute, what it takes; of that of memory, network and host, what is not
# hidden behind it: fitted to published runs (`tpu.tables`).
EXPECTED = (1.11, 0.51)


def expected(seconds: dict[str, float]) -> float:
    """Seconds of a step from the least ones for compute, memory, network and host."""
    rest = sum(seconds.values()) - seconds["compute"]
    return max(*seconds.values(), EXPECTED[0] * seconds["compute"] + EXPECTED[1] * rest)


def compile_devices(topology: Topology) -> list[Any]:
    """The slice's chips, as devices that programs can be compiled for and not run on.

    Raises:
      ValueError: if libtpu is not installed.
    """
    # So that libtpu neither looks for a TPU nor asks the cloud's metadata server for one.
    for name, value in {
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_ACCELERATOR_TYPE": topology.accelerator_type,
        "TPU_WORKER_HOSTNAMES": "localhost",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    }.items():
        os.environ.setdefault(name, value)
    jax.config.update("jax_platforms", "cpu")
    # Not told of rings, libtpu takes there to be none, and all-reduces where it could gather.
    options: dict[str, Any] = {"wrap": (*topology.rings, False)[:3]}
    if topology.chip.name == "v4":
        options["chip_config_name"] = "megacore"  # a chip's two cores are one device, as on v5p
    if topology.num_chips == 1:
        options["chips_per_host_bounds"] = (1, 1, 1)
    try:
        return topologies.get_topology_desc(topology.name, platform="tpu", **options).devices
    except (ImportError, OSError, RuntimeError) as error:
        raise ValueError(
            f"libtpu cannot be loaded ({str(error).splitlines()[0]}); "
            "pip install '.[tpu]' in the folder of ropewalk, in an environment of its own"
        ) from error


def step_arguments(config: ExperimentConfig, mesh: Mesh, num_members: int) -> tuple:
    """What `training.loop` gives its step, as shapes with shardings."""
    (stage, *_) = split(config)
    state = abstract_state(config, num_members, mesh)
    shape = (config.data.batch_size, config.data.context_length)
    integers = jax.ShapeDtypeStruct(shape, np.int32, sharding=sharding.batch_sharding(mesh))
    batch = dict.fromkeys(("tokens", "targets", "positions", "segment_ids"), integers)
    batch |= {"loss_mask": integers.update(dtype=np.float32)}
    return state, member_arrays([stage] * num_members), batch, np.int32(0)


def analyse(config: ExperimentConfig, topology: Topology, num_members: int = 1) -> Report:
    """Compiles the step and reads the program.

    Raises:
      ValueError: if libtpu is missing, or the mesh does not suit the slice.
    """
    mesh = make_mesh(config, num_members, compile_devices(topology))
    arguments = step_arguments(config, mesh, num_members)
    step = compile_step(config, num_members, mesh, shardings_of(arguments[0]))
    rows, length = config.data.batch_size // config.train.accumulate, config.data.context_length
    started = time.monotonic()
    with jax.set_mesh(mesh):
        attention = kernels.choose_for_model(config.model, rows, length).describe()
        traced = step.trace(*arguments)
        data_trips = causal_trips(traced.jaxpr.jaxpr)
        shards = mesh.shape["sequence"]
        flops = count_flops(traced.jaxpr.jaxpr, mesh.size, data_trips, shards)
        lowered = traced.lower()
        compiled = problem = None
        try:
            compiled = lowered.compile()
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            problem = str(error)
    compile_seconds = time.monotonic() - started
    memory = dict.fromkeys(("arguments", "code", "peak"))
    collectives, memory_traffic, host_traffic = [], 0.0, 0.0
    if compiled is not None:
        program = Program(compiled.as_text() or "", data_trips)
        collectives = program.collectives()
        memory_traffic, host_traffic = program.memory_bytes(HBM), program.memory_bytes(HOST)
        stats = compiled.memory_analysis()
        # libtpu's peak is that of its fullest memory, and with `remat=offload` the host's may be.
        together = stats.argument_size_in_bytes + stats.temp_size_in_bytes
        together += stats.output_size_in_bytes - stats.alias_size_in_bytes
        memory = {
            "arguments": stats.argument_size_in_bytes,
            "code": stats.generated_code_size_in_bytes,
            "peak": min(stats.peak_memory_in_bytes, together),
        }
    flops /= mesh.size
    tokens = config.data.batch_size * length
    chip = topology.chip
    return Report(
        **memory,
        attention=attention,
        problem=problem,
        collectives=collectives,
        bound=least_traffic(config, mesh, arguments[0].params),
        flops=flops,
        model_flops=num_members * tokens * metrics.flops_per_token(config) / mesh.size,
        memory_traffic=memory_traffic,
        host_traffic=host_traffic,
        seconds={
            "compute": flops / metrics.PEAK_FLOPS[chip.device_kind],
            "memory": memory_traffic / chip.memory_bandwidth,
            "network": sum(c.wire_bytes / bandwidth(topology, c.group) for c in collectives),
            "host": host_traffic / chip.host_bandwidth,
        },
        compile_seconds=compile_seconds,
    )


def causal_trips(jaxpr: Any) -> int:
    """How often loops whose length depends on data run, on average: half of what they index.

    Such are attention's loops over blocks of keys (`model.kernels.blocks`), which end at the
    diagonal; 1 if there is none.
    """
    trips = [1]
    for loop in _equations(jaxpr):
        if loop.primitive.name != "while":
            continue
        for inner in _equations(loop.params["body_jaxpr"].jaxpr):
            if inner.primitive.name == "dynamic_slice" and inner.params["slice_sizes"][:1] == (1,):
                trips.append(inner.invars[0].aval.shape[0] // 2)
    return max(trips)


def _equations(jaxpr: Any) -> Iterator[Any]:
    """All of a program, what is inside of others too."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in jaxprs_in_params(equation.params):
            yield from _equations(inner)


def count_flops(jaxpr: Any, num_devices: int, data_trips: int = 1, shards: int = 1) -> float:
    """FLOPs of the matrix products of a traced program, loops and recomputation included.

    Args:
      jaxpr: of the whole step.
      num_devices: over which the inside of a `shard_map` runs, each on its part.
      data_trips: of loops whose length depends on data.
      shards: devices that share a row; a kernel there goes over all of them, one after another.
    """
    total = 0.0
    for equation in jaxpr.eqns:
        name, params = equation.primitive.name, equation.params
        if name == "dot_general":
            (contracted, _), _ = params["dimension_numbers"]
            depth = math.prod(equation.invars[0].aval.shape[axis] for axis in contracted)
            total += 2.0 * depth * equation.outvars[0].aval.size
        elif name == "pallas_call":
            # All of a kernel's blocks have the same products: those below the diagonal, and on it.
            *_, num_blocks = grid = params["grid_mapping"].grid
            taken = 0.5 * (1 + 1 / (num_blocks * shards))
            total += taken * math.prod(grid) * count_flops(params["jaxpr"], 1)
        elif name == "cond":
            total += max(
                count_flops(branch.jaxpr, num_devices, data_trips, shards)
                for branch in params["branches"]
            )
        else:
            times = {"scan": params.get("length"), "while": data_trips, "shard_map": num_devices}
            for inner in jaxprs_in_params(params):
                once = count_flops(inner, num_devices, data_trips, shards)
                total += times.get(name, 1) * once
    return total


def least_traffic(config: ExperimentConfig, mesh: Mesh, params: Any) -> dict[str, float]:
    """Wire bytes a chip cannot do without under FSDP: each microbatch gathers the parameters for
    the forward and for the backward pass, and scatters their gradients, in the compute dtype.

    What `tensor` and `sequence` need comes on top, and is not counted here.
    """
    fsdp = mesh.shape["fsdp"]
    width = jnp.dtype(config.model.compute_dtype).itemsize
    gathered = sum(
        math.prod(leaf.sharding.shard_shape(leaf.shape)) * fsdp * width
        for leaf in jax.tree.leaves(params)
        if "fsdp" in leaf.sharding.spec
    )
    once = config.train.accumulate * gathered * (fsdp - 1) / fsdp
    return {"all-gather": 2 * once, "reduce-scatter": once}


def bandwidth(topology: Topology, group: int) -> float:
    """Bytes/s that a chip receives from a group of chips laid along as few dimensions as hold it.

    A dimension brings two links where the group spans all of it and it closes to a ring, else one:
    the chips at its ends have no more.
    """
    links, held = 0, 1
    for side, ring in sorted(zip(topology.sides, topology.rings, strict=True), reverse=True):
        if held < group and side > 1:
            links += 2 if ring and held * side <= group else 1
            held *= side
    return max(1, links) * topology.chip.link_bandwidth


def advice(config: ExperimentConfig, sizes: dict[str, int]) -> str:
    """What to change of a step that does not fit: the cheapest first."""
    more = {"full": "offload", "offload": None}.get(config.model.remat, "full")
    found = [f"model.remat={more}"] if more else []
    if config.data.batch_size // config.train.accumulate > sizes["data"] * sizes["fsdp"]:
        found.append(f"train.accumulate={2 * config.train.accumulate}")
    else:
        found += [f"mesh.{axis}={2 * sizes[axis]}" for axis in ("sequence", "tensor")]
    return ", or ".join([*found, "a larger slice"])


def show(
    config: ExperimentConfig, topology: Topology, num_members: int, report: Report, console: Console
) -> None:
    """Prints a report."""
    console.print(f"compiled in {report.compile_seconds:.0f} s")
    if told := compiling.describe(topology.chip.device_kind):
        console.print(told, soft_wrap=True)
    console.print(report.attention, soft_wrap=True)
    if report.problem is not None:
        used = next((x for x in report.problem.splitlines() if "Used" in x), report.problem)
        console.print(f"does not fit: {used.strip()[:200]}")
    else:
        for name in ("arguments", "code"):
            console.print(f"{name:<12} {amount(getattr(report, name) or 0):>12} per chip")
        fits = "fits" if report.fits(topology) else "does not fit"
        memory = amount(topology.chip.memory)
        console.print(f"{'at most':<12} {amount(report.peak or 0):>12} of {memory}: {fits}")
    sizes = mesh_sizes(config, num_members, topology.num_chips)
    if not report.fits(topology):
        console.print(f"to make it fit: {advice(config, sizes)}")
    if report.problem is None:
        console.print("", _collectives_table(report), "", sep="\n")
        for line in _times(topology.chip, report):
            console.print(line)


def _collectives_table(report: Report) -> Table:
    right = ("count", "arrays", "received", "FSDP: 2 gathers, 1 scatter")
    table = make_table("a step's collectives, per chip", ("kind",), right)
    for kind in sorted({c.kind for c in report.collectives} | set(report.bound)):
        own = [c for c in report.collectives if c.kind == kind]
        table.add_row(
            kind,
            str(sum(c.count for c in own)),
            amount(sum(c.count * c.num_bytes for c in own)),
            amount(sum(c.wire_bytes for c in own)),
            amount(report.bound[kind]) if kind in report.bound else "-",
        )
    least = sum(report.bound.values())
    ratio = f" ({report.received / least:.2f}x)" if least else ""
    table.add_row("in all", "", "", amount(report.received) + ratio, amount(least))
    return table


def _times(chip: Chip, report: Report) -> Iterator[str]:
    """The least times of a step, and what they make of it."""
    peak = metrics.PEAK_FLOPS[chip.device_kind]
    rates = {name: getattr(chip, f"{name}_bandwidth") / 1e9 for name in ("memory", "link", "host")}
    ratio = f"{report.flops / report.model_flops:.2f}x the model's"
    details = {
        "compute": f"{report.flops:.3e} FLOP per chip, {ratio}, at {peak / 1e12:.0f} TFLOP/s",
        "memory": f"{amount(report.memory_traffic)} per chip, at {rates['memory']:.0f} GB/s",
        "network": f"{amount(report.received)} per chip, at {rates['link']:.0f} GB/s per link",
        "host": f"{amount(report.host_traffic)} per chip, at {rates['host']:.0f} GB/s",
    }
    if not report.host_traffic:
        del details["host"]
    for name, detail in details.items():
        yield f"{name:<7} {report.seconds[name]:8.3f} s  {detail}"
    best, worst = max(report.seconds.values()), sum(report.seconds.values())
    ideal = report.model_flops / peak
    yield (
        f"a step takes {best:.3f} s (MFU {ideal / best:.0%}) if these overlap perfectly, "
        f"{worst:.3f} s (MFU {ideal / worst:.0%}) one after another"
    )
    yield "stragglers, input and matrix units that are not full come on top of either"
    likely = report.expected
    yield f"expected, as published runs went: {likely:.3f} s (MFU {ideal / likely:.0%})"


def main() -> int:
    """Command line; exit status 2 after one line for a user's mistake, 1 if it does not fit."""
    parser = command_line("python -m tpu.aot", __doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    arguments = parser.parse_intermixed_args()
    try:
        topology = topology_lib.find(arguments.topology)
        config = overrides.apply(find_config(arguments.config), arguments.overrides)
        report = analyse(config, topology, arguments.members)
    except ValueError as error:
        parser.error(str(error))
    if arguments.json:
        collectives = [dataclasses.asdict(one) for one in report.collectives]
        print(json.dumps(report._asdict() | {"collectives": collectives}))
    else:
        show(config, topology, arguments.members, report, Console(highlight=False, width=100))
    return 0 if report.fits(topology) else 1


if __name__ == "__main__":
    sys.exit(main())
