"""Cost of a train step compiled for absent TPUs or GPUs: memory, traffic, FLOPs and time.

Memory is that of `jax.stages.Compiled.memory_analysis`. FLOPs are counted in the traced program and
bytes in the compiled one, because `cost_analysis` counts the body of a loop once (11.8e9 FLOPs for
2 and for 8 layers of one model), and memory on the chip as HBM.
"""

import math
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxprs_in_params
from jax.sharding import Mesh

from ropewalk.experiment import metrics
from ropewalk.experiment.config import ExperimentConfig
from ropewalk.experiment.devices import planned_bytes
from ropewalk.experiment.mesh import make_mesh
from ropewalk.experiment.stages import split
from ropewalk.model import axes, kernels, sharding
from ropewalk.tpu.hlo import HBM, HOST, Collective, Program
from ropewalk.tpu.topology import Machines, Topology
from ropewalk.training.members import abstract_state, shardings_of
from ropewalk.training.programs import member_arrays
from ropewalk.training.step import compile_step
from ropewalk.utils.messages import size


class Report(NamedTuple):
    """Properties of a compiled step, per device unless stated otherwise.

    Attributes:
      mesh: number of devices along each axis.
      attention: the kernel and the reason why a faster one is not used, as printed by train.py.
      arguments, code: bytes of HBM of training state and batch, and of the program; None if the
        step does not fit.
      peak: largest number of bytes of HBM in use at once, arguments included; None if libtpu
        refuses the step. An upper bound if `host_peak` is not 0.
      host_peak: bytes of the host's memory for a chip (`remat=offload`).
      problem: reason that the step does not fit, else None; libtpu's message on a TPU.
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

    mesh: dict[str, int]
    attention: str
    arguments: int | None
    code: int | None
    peak: int | None
    host_peak: int | None
    problem: str | None
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


def analyze(config: ExperimentConfig, chips: Topology | Machines, num_members: int = 1) -> Report:
    """Compile the step for the chips and read the compiled program.

    Raises:
      ValueError: if the compiler is missing, or the mesh does not suit the chips.
    """
    mesh = make_mesh(config, num_members, chips.compile_devices())
    arguments = step_arguments(config, mesh, num_members)
    step = compile_step(config, num_members, mesh, shardings_of(arguments[0]))
    started = time.monotonic()
    print(f"compiling for {chips.name} (seconds to four minutes)", file=sys.stderr)
    with jax.set_mesh(mesh):
        attention = kernels.choose_for_model(config.model, config.data.context_length).describe()
        traced = step.trace(*arguments)
        compiled = problem = None
        try:
            compiled = traced.lower().compile()
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            problem = str(error)
    compile_seconds = time.monotonic() - started
    jaxpr = traced.jaxpr.jaxpr
    data_trips = causal_trips(jaxpr)
    flops = count_flops(jaxpr, mesh.size, data_trips, mesh.shape["sequence"]) / mesh.size
    is_gpu = isinstance(chips, Machines)
    per_host = chips.chips_per_host if is_gpu else None
    program = Program((compiled and compiled.as_text()) or "", data_trips, per_host)
    collectives = program.collectives()
    memory_traffic, host_traffic = program.memory_bytes(HBM), program.memory_bytes(HOST)
    memory = _memory(compiled, is_gpu)
    # XLA for GPUs does not refuse a step.
    if is_gpu and (memory["peak"] or 0) > chips.chip.usable_memory:
        problem = f"{size(memory['peak'] or 0)} of {size(chips.chip.usable_memory)}"
    tokens = num_members * config.data.batch_size * config.data.context_length
    return Report(
        **memory,
        mesh=dict(mesh.shape),
        attention=attention,
        problem=problem,
        collectives=collectives,
        bound=least_traffic(config, mesh, arguments[0].params),
        flops=flops,
        model_flops=tokens * metrics.flops_per_token(config) / mesh.size,
        memory_traffic=memory_traffic,
        host_traffic=host_traffic,
        seconds={
            "compute": flops / peak_flops(chips),
            "memory": memory_traffic / chips.chip.memory_bandwidth,
            "network": sum(chips.transfer_seconds(collective) for collective in collectives),
            "host": host_traffic / chips.chip.host_bandwidth,
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


def _memory(compiled: Any, is_gpu: bool) -> dict[str, int | None]:
    """Return the bytes of memory of a compiled program, as named in `Report`."""
    if compiled is None:
        return dict.fromkeys(("arguments", "code", "peak", "host_peak"))
    stats = compiled.memory_analysis()
    host_peak = stats.host_temp_size_in_bytes
    peak = planned_bytes(compiled)
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


def peak_flops(chips: Topology | Machines) -> float:
    """Return the dense bfloat16 FLOP/s of a chip."""
    peak = metrics.peak_of(chips.chip.device_kind)
    if not peak:
        raise ValueError(f"experiment/chips.toml lacks {chips.chip.device_kind}; add its FLOP/s")
    return peak


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
    width = jnp.dtype(axes.products_dtype(config.model.compute_dtype)).itemsize
    gathered = sum(
        math.prod(leaf.sharding.shard_shape(leaf.shape)) * fsdp * width
        for leaf in jax.tree.leaves(params)
        if "fsdp" in leaf.sharding.spec
    )
    once = config.train.accumulate * gathered * (fsdp - 1) / fsdp
    return {"all-gather": 2 * once, "reduce-scatter": once}
