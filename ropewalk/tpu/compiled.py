"""A train step compiled for absent TPUs or GPUs: memory, attention kernel and collectives."""

import sys
import time
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from ropewalk.experiment.config import ExperimentConfig
from ropewalk.experiment.devices import planned_bytes
from ropewalk.experiment.mesh import make_mesh
from ropewalk.experiment.stages import split
from ropewalk.model import kernels, sharding
from ropewalk.tpu import hlo
from ropewalk.tpu.topology import Machines, Topology
from ropewalk.training.members import abstract_state, shardings_of
from ropewalk.training.programs import member_arrays
from ropewalk.training.step import compile_step
from ropewalk.utils.messages import size


class Report(NamedTuple):
    """Properties of a compiled step, per device.

    Attributes:
      mesh: number of devices along each axis.
      attention: the kernel and the reason why a faster one is not used, as printed by train.py.
      arguments: bytes of HBM of training state and batch; None if the step does not fit.
      peak: largest number of bytes of HBM in use at once, arguments included; None if libtpu
        refuses the step. An upper bound if `host_peak` is not 0.
      host_peak: bytes of the host's memory for a chip (`remat=offload`).
      problem: reason that the step does not fit, else None; libtpu's message on a TPU.
      collectives: of the compiled program.
      compile_seconds: time that the compiler took.
    """

    mesh: dict[str, int]
    attention: str
    arguments: int | None
    peak: int | None
    host_peak: int | None
    problem: str | None
    collectives: list[hlo.Collective]
    compile_seconds: float


def compile_for(
    config: ExperimentConfig, chips: Topology | Machines, num_members: int = 1
) -> Report:
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
        compiled = problem = None
        try:
            compiled = step.lower(*arguments).compile()
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            problem = str(error)
    is_gpu = isinstance(chips, Machines)
    memory = _memory(compiled, is_gpu)
    # XLA for GPUs does not refuse a step.
    if is_gpu and (memory["peak"] or 0) > chips.chip.usable_memory:
        problem = f"{size(memory['peak'] or 0)} of {size(chips.chip.usable_memory)}"
    return Report(
        **memory,
        mesh=dict(mesh.shape),
        attention=attention,
        problem=problem,
        collectives=hlo.collectives(compiled.as_text()) if compiled else [],
        compile_seconds=time.monotonic() - started,
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
        return dict.fromkeys(("arguments", "peak", "host_peak"))
    stats = compiled.memory_analysis()
    host_peak, peak = stats.host_temp_size_in_bytes, planned_bytes(compiled)
    # A GPU allocates the temporaries as one array. On a TPU they are not all in use at once; but
    # with `remat=offload` libtpu gives the peak of the host's memory, and only their sum is known.
    if not (is_gpu or host_peak):
        peak = min(peak, stats.peak_memory_in_bytes)
    return {"arguments": stats.argument_size_in_bytes, "peak": peak, "host_peak": host_peak}
