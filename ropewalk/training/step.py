"""One update: the loss, its gradient, AdamW. Written for one member; a sweep wraps it."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

from ropewalk.experiment.config import ExperimentConfig
from ropewalk.experiment.schedule import learning_rate_fraction
from ropewalk.model import transformer
from ropewalk.model.config import Architecture, PositionTable
from ropewalk.model.loss import total_nll
from ropewalk.model.transformer import Params
from ropewalk.training import optimizer
from ropewalk.training.programs import MemberArrays, StaticConfig, program, static_config


class State(NamedTuple):
    """The training state. A sweep stacks members in front of every array.

    Attributes:
      params: model parameters.
      opt_state: optimizer state.
      skipped: int32, updates skipped in a row; once it reaches `train.max_skipped`, it only grows.
    """

    params: Params
    opt_state: Any
    skipped: jax.Array | np.integer


def init_state(config: StaticConfig | ExperimentConfig, seed: jax.Array) -> State:
    """Return the initial state of one member."""
    params = transformer.init(config.model, seed)
    return State(
        params, optimizer.make_optimizer(config.train).init(params), jnp.zeros((), jnp.int32)
    )


def loss_fn(
    params: Params,
    config: Architecture,
    table: PositionTable,
    batch: dict[str, jax.Array],
    num_targets: jax.Array,
) -> jax.Array:
    """Return the loss of a microbatch: nats over counted targets, divided by `num_targets`."""
    hidden_BTD = transformer.hidden(
        config, params, table, batch["tokens"], batch["positions"], batch["segment_ids"]
    )
    targets_BT, mask_BT = batch["targets"], batch["loss_mask"]
    return total_nll(config, params, hidden_BTD, targets_BT, mask_BT, num_targets)


def split_batch(batch: dict[str, jax.Array], accumulate: int) -> dict[str, jax.Array]:
    """Return the microbatches of a batch `[B, T]`, `[accumulate, B / accumulate, T]`."""
    return jax.tree.map(lambda x: x.reshape(accumulate, -1, *x.shape[1:]), batch)


def train_step(
    config: StaticConfig | ExperimentConfig,
    state: State,
    member: MemberArrays,
    batch: dict[str, jax.Array],
    step: jax.Array,
) -> tuple[State, dict[str, jax.Array]]:
    """Compute one update of one member.

    Args:
      config: the static part, shared by all members.
      state: the training state.
      member: its frequencies and peak learning rate.
      batch: the contract of `data`, `[B, T]` each.
      step: number of this update within the stage, from 0.

    Returns:
      The new state, and scalars: loss (nats per counted target), grad_norm, learning_rate, and
      skipped (updates skipped in a row, including this one).
    """
    # Divide by the targets of the full batch, so that the losses of microbatches add up: rows have
    # different numbers of targets, and a mean of means would weight them wrongly.
    num_targets = jnp.maximum(batch["loss_mask"].sum(), 1)
    gradient = jax.value_and_grad(
        lambda params, rows: loss_fn(params, config.model, member.table, rows, num_targets)
    )
    if config.train.accumulate == 1:
        loss, grads = gradient(state.params, batch)
    else:

        def add(total, rows):
            return jax.tree.map(jnp.add, total, gradient(state.params, rows)), None

        zero = (jnp.zeros(()), jax.tree.map(jnp.zeros_like, state.params))
        (loss, grads), _ = jax.lax.scan(add, zero, split_batch(batch, config.train.accumulate))

    learning_rate = member.learning_rate * learning_rate_fraction(config.train, step)
    updates, opt_state = optimizer.make_optimizer(config.train).update(
        grads, state.opt_state, state.params
    )
    params = jax.tree.map(lambda x, update: x + update * -learning_rate, state.params, updates)

    grad_norm = optax.global_norm(grads)
    finite = jnp.isfinite(loss) & jnp.isfinite(grad_norm)
    # Freeze the member here, not on the host: it is then frozen at the same update, wherever the
    # run is stopped and resumed.
    applies = finite & (state.skipped < config.train.max_skipped)
    updated = State(params, opt_state, jnp.zeros_like(state.skipped))
    skipped_state = state._replace(skipped=state.skipped + 1)
    # A bad batch must neither end a run nor reach AdamW's moments, which would keep it for
    # thousands of steps. Select, do not multiply: 0 x NaN is NaN.
    state = jax.tree.map(lambda new, old: jnp.where(applies, new, old), updated, skipped_state)
    scalars = {
        "loss": loss,
        "grad_norm": grad_norm,
        "learning_rate": learning_rate,
        "skipped": state.skipped,
    }
    return state, scalars


def over_members(function: Callable, num_members: int, mesh: Mesh) -> Callable:
    """Return `function(state, member, *shared)` for all members at once, in one program.

    One member carries no extra axis: a single run pays nothing for sweeps.
    """
    if num_members == 1:
        return function
    if is_unsplit_cpu(mesh):
        # XLA's batched matrix products are slower on a CPU than one after another.
        return _run_sequentially(function, mesh)
    # The name puts the members' axis into every sharding constraint inside `function`, which was
    # written for one member: without it each device would hold, and compute, all of them.
    return lambda state, member, *shared: jax.vmap(
        lambda state, member: function(state, member, *shared), spmd_axis_name="sweep"
    )(state, member)


def is_unsplit_cpu(mesh: Mesh) -> bool:
    """Return whether the devices are CPUs and no member is split over devices."""
    return mesh.size == mesh.shape.get("sweep") and mesh.devices.flat[0].platform == "cpu"


def _run_sequentially(function: Callable, mesh: Mesh) -> Callable:
    """Run the members of each device one after another, without waiting for other devices."""

    def run_members(state, member, *shared):
        # Each device works alone on its members: hide the mesh from `function`.
        with jax.sharding.use_abstract_mesh(AbstractMesh((), ())):
            return jax.lax.map(
                lambda member_inputs: function(*member_inputs, *shared), (state, member)
            )

    if mesh.size == 1:
        return run_members
    members_spec, everywhere = PartitionSpec("sweep"), PartitionSpec()

    def spread(state, member, *shared):
        specs = (members_spec, members_spec, *(everywhere for _ in shared))
        return jax.shard_map(
            run_members, in_specs=specs, out_specs=members_spec, mesh=mesh, check_vma=False
        )(state, member, *shared)

    return spread


def compile_step(
    config: ExperimentConfig, num_members: int, mesh: Mesh, shardings: State
) -> Callable:
    """Return the program of a stage: `train_step` of all members, jitted.

    Args:
      config: of the stage; only its static part is read.
      num_members: stacked in front of state and member, if more than one.
      mesh: set by the caller of the program.
      shardings: of the state.
    """
    # With several hosts, copy the scalars to all devices, since a host can read only its own. With
    # one host, devices need not wait for one another.
    alone = jax.process_count() == 1 and num_members > 1
    scalars = NamedSharding(mesh, PartitionSpec(*(["sweep"] if alone else [])))
    # Donate the state: the new one overwrites the old one, so that memory holds one of them. A
    # caller that needs the old state copies it first.
    return program(
        _step,
        static_config(config),
        num_members,
        mesh,
        out_shardings=(shardings, scalars),
        donate=0,
        device_kind=mesh.devices.flat[0].device_kind,
    )


def _step(config: StaticConfig, num_members: int, mesh: Mesh) -> Callable:
    return over_members(functools.partial(train_step, config), num_members, mesh)
