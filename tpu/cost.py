"""Cost of a train step compiled for absent TPUs or GPUs: memory, traffic, FLOPs and time."""

import contextlib
import fnmatch
import math
import os
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies
from jax.extend.core import jaxprs_in_params
from jax.sharding import Mesh
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from experiment import metrics
from experiment.config import ExperimentConfig
from experiment.mesh import make_mesh, mesh_sizes
from experiment.stages import split
from model import kernels, sharding
from tpu import gpu
from tpu.gpu import Machines
from tpu.hlo import HBM, HOST, Collective, Program
from tpu.memory import amount, make_table
from tpu.topology import Topology
from training import programs
from training.members import abstract_state, shardings_of
from training.step import compile_step, member_arrays

# Factors of the least compute time, and of the sum of the least memory, network and host times,
# of which a part overlaps: fitted to published runs on TPUs (`tpu.tables`).
EXPECTED = (1.153, 0.543)
# Least and largest ratio of a published run's time to the time expected from the other runs.
RANGE = (0.85, 1.141)


class Report(NamedTuple):
    """Properties of a compiled step, per chip unless stated otherwise.

    Attributes:
      attention: the kernel and the reason why a faster one is not used, as printed by train.py.
      arguments, code: bytes of HBM of training state and batch, and of the program; None if the
        step does not fit.
      peak: largest number of bytes of HBM in use at once, arguments included; None if libtpu
        refuses the step. An upper bound if `host_peak` is not 0.
      host_peak: bytes of the host's memory for a chip (`remat=offload`).
      problem: reason that the step does not fit, else None; libtpu's message on a TPU.
      launches: kernels of the program; a TPU runs one program.
      collectives: of the compiled program.
      bound: least wire bytes of FSDP, by kind of collective.
      flops: executed, recomputation included.
      model_flops: as train.py counts them for MFU.
      memory_traffic, host_traffic: bytes to and from HBM, and the host's memory.
      seconds: least times of compute, memory, network and host.
      tokens: of a step, on all chips.
      steps: of the run; of a config with stages, its first one.
      compile_seconds: time that the compiler took.
    """

    attention: str
    arguments: int | None
    code: int | None
    peak: int | None
    host_peak: int | None
    problem: str | None
    launches: int
    collectives: list[Collective]
    bound: dict[str, float]
    flops: float
    model_flops: float
    memory_traffic: float
    host_traffic: float
    seconds: dict[str, float]
    tokens: int
    steps: int
    compile_seconds: float

    @property
    def received(self) -> float:
        """Bytes that a chip receives in a step."""
        return sum(collective.wire_bytes for collective in self.collectives)

    @property
    def from_other_hosts(self) -> float:
        """Part of `received` that comes from other hosts."""
        return sum(collective.network_bytes for collective in self.collectives)


def expected(seconds: dict[str, float], factors: tuple[float, float] = EXPECTED) -> float:
    """Return the expected seconds of a step from the least times of a `Report`."""
    rest = sum(seconds.values()) - seconds["compute"]
    return max(*seconds.values(), factors[0] * seconds["compute"] + factors[1] * rest)


def compile_devices(topology: Topology | Machines) -> list[Any]:
    """Return the chips as devices for compilation only.

    Raises:
      ValueError: if their compiler is not installed.
    """
    if isinstance(topology, Machines):
        return gpu.compile_devices(topology)
    _check_libtpu()
    # libtpu must not look for a TPU, nor query the cloud's metadata server for one.
    for name, value in {
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_ACCELERATOR_TYPE": topology.accelerator_type,
        "TPU_WORKER_HOSTNAMES": "localhost",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    }.items():
        os.environ.setdefault(name, value)
    jax.config.update("jax_platforms", "cpu")
    # Without `wrap` libtpu assumes that there are no rings, and all-reduces instead of gathering.
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


def _check_libtpu() -> None:
    """Raise ValueError if libtpu is not the one that this JAX needs: it would crash later."""
    with contextlib.suppress(PackageNotFoundError):
        present = version("libtpu")
        needs = next(line for line in requires("jax") or () if line.startswith("libtpu"))
        pattern = needs.partition(";")[0].partition("==")[2].strip()
        if not fnmatch.fnmatch(present, pattern):
            raise ValueError(
                f"JAX {jax.__version__} needs libtpu {pattern}, and {present} is installed; "
                "`make test-tpu` installs the matching one into .venv-libtpu"
            )


def analyze(
    config: ExperimentConfig, topology: Topology | Machines, num_members: int = 1
) -> Report:
    """Compile the step for the chips and read the compiled program.

    Raises:
      ValueError: if the compiler is missing, or the mesh does not suit the chips.
    """
    mesh = make_mesh(config, num_members, compile_devices(topology))
    arguments = step_arguments(config, mesh, num_members)
    step = compile_step(config, num_members, mesh, shardings_of(arguments[0]))
    started = time.monotonic()
    with jax.set_mesh(mesh):
        attention = kernels.choose_for_model(config.model, config.data.context_length).describe()
        traced = step.trace(*arguments)
        with _progress(topology):
            compiled, problem = _compile(traced)
    compile_seconds = time.monotonic() - started
    jaxpr = traced.jaxpr.jaxpr
    data_trips = causal_trips(jaxpr)
    flops = count_flops(jaxpr, mesh.size, data_trips, mesh.shape["sequence"]) / mesh.size
    is_gpu = isinstance(topology, Machines)
    per_host = topology.chips_per_host if is_gpu else None
    program = Program((compiled and compiled.as_text()) or "", data_trips, per_host)
    collectives = program.collectives()
    memory_traffic, host_traffic = program.memory_bytes(HBM), program.memory_bytes(HOST)
    tokens = num_members * config.data.batch_size * config.data.context_length
    chip = topology.chip
    memory = _memory(compiled, is_gpu)
    # XLA for GPUs does not refuse a step.
    if is_gpu and (memory["peak"] or 0) > topology.usable_memory:
        problem = f"{amount(memory['peak'] or 0)} of {amount(topology.usable_memory)}"
    return Report(
        **memory,
        attention=attention,
        problem=problem,
        launches=program.launches() if is_gpu else 1,
        collectives=collectives,
        bound=least_traffic(config, mesh, arguments[0].params),
        flops=flops,
        model_flops=tokens * metrics.flops_per_token(config) / mesh.size,
        memory_traffic=memory_traffic,
        host_traffic=host_traffic,
        seconds={
            "compute": flops / peak_flops(topology),
            "memory": memory_traffic / chip.memory_bandwidth,
            "network": sum(transfer_seconds(topology, c) for c in collectives),
            "host": host_traffic / chip.host_bandwidth,
        },
        tokens=tokens,
        steps=split(config)[0].end,
        compile_seconds=compile_seconds,
    )


def step_arguments(config: ExperimentConfig, mesh: Mesh, num_members: int) -> tuple:
    """Return the arguments of the training step as shapes with shardings."""
    (stage, *_) = split(config)
    state = abstract_state(config, num_members, mesh)
    shape = (config.data.batch_size, config.data.context_length)
    integers = jax.ShapeDtypeStruct(shape, np.int32, sharding=sharding.batch_sharding(mesh))
    batch = dict.fromkeys(("tokens", "targets", "positions", "segment_ids"), integers)
    batch |= {"loss_mask": integers.update(dtype=np.float32)}
    return state, member_arrays([stage] * num_members), batch, np.int32(0)


def _compile(traced: Any) -> tuple[Any, str | None]:
    """Return (the compiled program, None), or (None, the message) if it does not fit."""
    try:
        return traced.lower().compile(), None
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return None, str(error)


def _memory(compiled: Any, is_gpu: bool) -> dict[str, int | None]:
    """Return the bytes of memory of a compiled program, as named in `Report`."""
    if compiled is None:
        return dict.fromkeys(("arguments", "code", "peak", "host_peak"))
    stats = compiled.memory_analysis()
    host_peak = stats.host_temp_size_in_bytes
    peak = stats.argument_size_in_bytes + stats.temp_size_in_bytes
    peak += stats.output_size_in_bytes - stats.alias_size_in_bytes
    # A GPU allocates the temporaries as one array. On a TPU they are not all in use at once; but
    # with `remat=offload` libtpu gives the peak of the host's memory, and only their sum is known.
    if not (is_gpu or host_peak):
        peak = min(peak, stats.peak_memory_in_bytes)
    return {
        "arguments": stats.argument_size_in_bytes,
        "code": stats.generated_code_size_in_bytes,
        "peak": peak,
        "host_peak": host_peak,
    }


def peak_flops(topology: Topology | Machines) -> float:
    """Return the dense bfloat16 FLOP/s of a chip."""
    peak = metrics.peak_of(topology.chip.device_kind)
    if not peak:
        raise ValueError(f"experiment/chips.toml lacks {topology.chip.device_kind}; add its FLOP/s")
    return peak


def transfer_seconds(topology: Topology | Machines, collective: Collective) -> float:
    """Return the least time of a collective's executions in a step."""
    if not isinstance(topology, Machines):
        return collective.wire_bytes / bandwidth(topology, collective.group)
    within = (collective.wire_bytes - collective.network_bytes) / topology.chip.link_bandwidth
    if not collective.network_bytes:
        return within
    return max(within, collective.network_bytes / topology.chip.network_bandwidth)


def causal_trips(jaxpr: Any) -> int:
    """Return the mean number of iterations of loops whose length depends on data; 1 without any.

    These are attention's loops over blocks of keys (`model.kernels.blocks`). They end at the
    diagonal, so that they run over half of the blocks on average.
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
    """Yield all equations of a program, nested ones included."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in jaxprs_in_params(equation.params):
            yield from _equations(inner)


def count_flops(jaxpr: Any, num_devices: int, data_trips: int = 1, shards: int = 1) -> float:
    """Return the FLOPs of a traced program's matrix products, with loops and recomputation.

    Args:
      jaxpr: of the step.
      num_devices: number of devices that run the body of a `shard_map`, each on its shard.
      data_trips: iterations of loops whose length depends on data.
      shards: number of devices that share a row; a kernel visits the keys of all of them in turn.
    """
    total = 0.0
    for equation in jaxpr.eqns:
        name, params = equation.primitive.name, equation.params
        if name == "dot_general":
            (contracted, _), _ = params["dimension_numbers"]
            depth = math.prod(equation.invars[0].aval.shape[axis] for axis in contracted)
            total += 2.0 * depth * equation.outvars[0].aval.size
        elif name == "pallas_call" and params["cost_estimate"]:
            total += params["cost_estimate"].flops
        elif name == "pallas_call":
            # Every block has the same products. Only blocks on and below the diagonal run.
            *_, num_blocks = grid = params["grid_mapping"].grid
            share = 0.5 * (1 + 1 / (num_blocks * shards))
            total += share * math.prod(grid) * count_flops(params["jaxpr"], 1)
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
    """Return the least wire bytes of a chip under FSDP, by kind of collective.

    Each microbatch gathers the parameters for the forward and for the backward pass, and scatters
    their gradients, in the compute dtype. Traffic of `tensor` and `sequence` is not included.
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
    """Return the bytes/s that a chip receives from a group."""
    return links_used(topology, group) * topology.chip.link_bandwidth


def links_used(topology: Topology, group: int) -> int:
    """Return the links of a chip to its group, which fills the longest sides of the slice first.

    A dimension adds two links if it closes to a ring and the group spans all of it. Otherwise it
    adds one, because the chips at the ends of the group have no second.
    """
    links, size = 0, 1
    for side, ring in sorted(zip(topology.sides, topology.rings, strict=True), reverse=True):
        if size < group and side > 1:
            links += 2 if ring and size * side <= group else 1
            size *= side
    return max(1, links)


def advice(config: ExperimentConfig, sizes: dict[str, int], excess: float = 2.0) -> str:
    """Return settings for a step that does not fit, the cheapest first.

    Args:
      config: of the step.
      sizes: number of devices along each axis of the mesh.
      excess: bytes that the step needs over those of a chip, if they are known.
    """
    accumulate, devices = config.train.accumulate, sizes["data"] * sizes["fsdp"]
    rows = config.data.batch_size // accumulate // devices
    settings = []
    if rows > 1:
        parts = next(n for n in range(2, rows + 1) if rows % n == 0 and n >= min(excess, rows))
        settings.append(f"train.accumulate={parts * accumulate}")
    if remat := {"full": "offload", "offload": None}.get(config.model.remat, "full"):
        settings.append(f"model.remat={remat}")
    if rows == 1 and devices > 1:
        settings += [f"mesh.{axis}={2 * sizes[axis]}" for axis in ("sequence", "tensor")]
    elif rows == 1:
        return ", or ".join([*settings, "more chips and mesh.sequence=2"])
    return ", or ".join([*settings, "more chips"])


def show(
    config: ExperimentConfig,
    topology: Topology | Machines,
    num_members: int,
    report: Report,
    console: Console,
) -> None:
    """Print a report."""
    console.print(f"compiled in {report.compile_seconds:.0f} s")
    if options := programs.describe_compiler_options(topology.chip.device_kind):
        console.print(options, soft_wrap=True)
    sizes = mesh_sizes(config, num_members, topology.num_chips, topology.num_hosts)
    console.print("mesh: " + ", ".join(f"{axis}={size}" for axis, size in sizes.items()))
    console.print(report.attention, soft_wrap=True)
    if report.peak is not None:
        for name in ("arguments", "code"):
            console.print(f"{name:<12} {amount(getattr(report, name) or 0):>12} per chip")
        fits = "does not fit" if report.problem else "fits"
        memory = amount(topology.usable_memory)
        if isinstance(topology, Machines):
            memory += f" (XLA_PYTHON_CLIENT_MEM_FRACTION={gpu.MEMORY_FRACTION})"
        limit = "at most" if report.host_peak else "peak"
        console.print(f"{limit:<12} {amount(report.peak):>12} of {memory}: {fits}")
        if report.host_peak:
            console.print(f"{'host':<12} {amount(report.host_peak):>12} per chip, in its memory")
    if report.problem is not None:
        used = next((x for x in report.problem.splitlines() if "Used" in x), report.problem)
        console.print(f"does not fit: {used.strip()[:200]}")
        excess = (report.peak or 0) / topology.usable_memory
        console.print(f"to make it fit: {advice(config, sizes, excess)}")
    if report.peak is not None:
        console.print("", _collectives_table(report), "", sep="\n")
        for line in _times(topology, report):
            console.print(line, soft_wrap=True)


def _collectives_table(report: Report) -> Table:
    # FSDP needs two gathers of each weight and one scatter of its gradient.
    right = ("count", "arrays", "received", "from other hosts", "FSDP needs")
    table = make_table("a step's collectives, per chip", ("kind",), right)
    for kind in sorted({c.kind for c in report.collectives} | set(report.bound)):
        of_kind = [c for c in report.collectives if c.kind == kind]
        table.add_row(
            kind,
            str(sum(c.count for c in of_kind)),
            amount(sum(c.count * c.num_bytes for c in of_kind)),
            amount(sum(c.wire_bytes for c in of_kind)),
            amount(sum(c.network_bytes for c in of_kind)),
            amount(report.bound[kind]) if kind in report.bound else "-",
        )
    bound = sum(report.bound.values())
    ratio = f" ({report.received / bound:.2f}x)" if bound else ""
    received = amount(report.received) + ratio
    table.add_row("total", "", "", received, amount(report.from_other_hosts), amount(bound))
    return table


def _times(topology: Topology | Machines, report: Report) -> Iterator[str]:
    """Yield the least times of a step, its time with and without overlap, and the run's cost."""
    chip, peak = topology.chip, peak_flops(topology)
    ratio = f"{report.flops / report.model_flops:.2f}x the model's"
    details = {
        "compute": f"{report.flops:.3e} FLOP per chip, {ratio}, at {peak / 1e12:.0f} TFLOP/s",
        "memory": f"{amount(report.memory_traffic)} per chip, at {chip.memory_bandwidth / 1e9:.0f} "
        "GB/s",
        "network": _describe_network(topology, report),
        "host": f"{amount(report.host_traffic)} per chip, at {chip.host_bandwidth / 1e9:.0f} GB/s",
    }
    if not report.host_traffic:
        del details["host"]
    for name, detail in details.items():
        yield f"{name:<7} {report.seconds[name]:8.3f} s  {detail}"
    best, worst = max(report.seconds.values()), sum(report.seconds.values())
    ideal = report.model_flops / peak
    yield (
        f"a step takes {best:.3f} s (MFU {ideal / best:.0%}) with perfect overlap, "
        f"{worst:.3f} s (MFU {ideal / worst:.0%}) without overlap"
    )
    yield "neither includes stragglers, input and partly filled matrix units"
    if isinstance(topology, Machines):
        yield (
            f"{report.launches} kernels per step; no expected time: nothing was compared with runs "
            "on GPUs, and only a device selects the variants of products (autotuning)"
        )
        times, basis = (best, worst), "between these two times"
    else:
        likely = expected(report.seconds)
        times, basis = (likely * RANGE[0], likely * RANGE[1]), "in the expected range"
        yield (
            f"expected from published runs: {likely:.3f} s (MFU {ideal / likely:.0%}), "
            f"{times[0]:.3f} to {times[1]:.3f} s by their leave-one-out errors"
        )
    tokens = " to ".join(f"{report.tokens / seconds:,.0f}" for seconds in reversed(times))
    hours = [report.steps * seconds / 3600 for seconds in times]
    yield f"{tokens} tokens/s {basis}"
    yield (
        f"{report.steps:,} steps: {' to '.join(f'{x:,.2f}' for x in hours)} hours, "
        f"{' to '.join(f'{topology.num_chips * x:,.1f}' for x in hours)} chip-hours"
    )


def _describe_network(topology: Topology | Machines, report: Report) -> str:
    received = amount(report.received)
    rate = f"at {topology.chip.link_bandwidth / 1e9:.0f} GB/s"
    if isinstance(topology, Machines):
        text = f"{received} per chip over {topology.chip.link} {rate}"
        if topology.num_hosts == 1:
            return text
        between = f"{topology.chip.network_bandwidth / 1e9:.0f} GB/s"
        return f"{text}; {amount(report.from_other_hosts)} of it between hosts at {between}"
    groups = sorted({c.group for c in report.collectives})
    links = [f"{group} chips: {links_used(topology, group)}" for group in groups]
    used = f" of {topology.chip.links} links ({', '.join(links)})" if links else ""
    return f"{received} per chip, {rate} per link{used}"


@contextlib.contextmanager
def _progress(topology: Topology | Machines) -> Iterator[None]:
    """Show that the compiler works, with the time since it started: it takes up to four minutes."""
    console = Console(stderr=True, highlight=False)
    text = f"compiling for {topology.name}"
    if not console.is_terminal:
        console.print(f"{text} (seconds to four minutes)")
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        progress.add_task(text, total=None)
        yield
