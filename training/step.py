"""One update: the loss, its gradient, AdamW. Written for one member; a sweep wraps it."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

from experiment.config import ExperimentConfig
from model import transformer
from model.config import ModelConfig
from model.loss import token_nll
from model.positions import PositionTable
from model.transformer import Params
from training import optimizer
from training.programs import program, program_of


class State(NamedTuple):
    """What an update changes. A sweep stacks members in front of every array.

    Attributes:
      params: the model's.
      opt_state: the optimizer's.
      skipped: int32, updates skipped in a row; from `train.max_skipped` on it only grows.
    """

    params: Params
    opt_state: Any
    skipped: jax.Array | np.integer


class MemberArrays(NamedTuple):
    """All that distinguishes a member of a sweep from the others."""

    table: PositionTable
    learning_rate: jax.Array | np.floating


def init_state(config: ExperimentConfig, seed: jax.Array) -> State:
    """Initial parameters and optimizer state of one member."""
    params = transformer.init(config.model, seed)
    return State(params, optimizer.direction(config.train).init(params), jnp.zeros((), jnp.int32))


def loss_fn(
    params: Params,
    config: ModelConfig,
    table: PositionTable,
    batch: dict[str, jax.Array],
    num_targets: jax.Array,
) -> jax.Array:
    """Nats of all targets of `batch` that count, over `num_targets`."""
    hidden_BTD = transformer.hidden(
        config, params, table, batch["tokens"], batch["positions"], batch["segment_ids"]
    )
    nll_BT = token_nll(config, params, hidden_BTD, batch["targets"])
    return jnp.sum(nll_BT * batch["loss_mask"]) / num_targets


def train_step(
    config: ExperimentConfig,
    state: State,
    member: MemberArrays,
    batch: dict[str, jax.Array],
    step: jax.Array,
) -> tuple[State, dict[str, jax.Array]]:
    """One update of one member.

    Args:
      config: only what all members share is read from it.
      state: parameters, optimizer state and how many updates were skipped.
      member: its frequencies and peak learning rate.
      batch: the contract of `data`, `[B, T]` each.
      step: number of this update within the stage, from 0.

    Returns:
      The new state, and scalars: loss (nats per target that counts), grad_norm, learning_rate,
      skipped (updates in a row, this one included).
    """
    # Of the whole batch, so that the losses of microbatches simply add up: rows have different
    # numbers of targets, and a mean of means would weigh them wrongly.
    num_targets = jnp.maximum(batch["loss_mask"].sum(), 1)
    if config.train.accumulate == 1:
        loss, grads = jax.value_and_grad(
            lambda params: loss_fn(params, config.model, member.table, batch, num_targets)
        )(state.params)
    else:
        split = (config.train.accumulate, -1)
        microbatches = jax.tree.map(lambda x: x.reshape(*split, *x.shape[1:]), batch)

        def add(total, rows):
            part = jax.value_and_grad(
                lambda params: loss_fn(params, config.model, member.table, rows, num_targets)
            )(state.params)
            return jax.tree.map(jnp.add, total, part), None

        zero = (jnp.zeros(()), jax.tree.map(jnp.zeros_like, state.params))
        (loss, grads), _ = jax.lax.scan(add, zero, microbatches)

    learning_rate = member.learning_rate * optimizer.learning_rate_fraction(config.train, step)
    updates, opt_state = optimizer.direction(config.train).update(
        grads, state.opt_state, state.params
    )
    updates = jax.tree.map(lambda update: -learning_rate * update, updates)
    params = jax.tree.map(jnp.add, state.params, updates)

    grad_norm = optax.global_norm(grads)
    finite = jnp.isfinite(loss) & jnp.isfinite(grad_norm)
    # After too many in a row the member is frozen, here and not where it is noticed: wherever the
    # run is stopped and gone on with, it is frozen at the same update.
    taken = finite & (state.skipped < config.train.max_skipped)
    updated = State(params, opt_state, jnp.zeros_like(state.skipped))
    kept = state._replace(skipped=state.skipped + 1)
    # One bad batch must not end a run, nor reach AdamW's moments, which would carry it on for
    # thousands of steps. Select, never multiply: 0 x NaN is NaN.
    state = jax.tree.map(lambda new, old: jnp.where(taken, new, old), updated, kept)
    scalars = {
        "loss": loss,
        "grad_norm": grad_norm,
        "learning_rate": learning_rate,
        "skipped": state.skipped,
    }
    return state, scalars


def over_members(function: Callable, num_members: int, mesh: Mesh) -> Callable:
    """`function(state, member, *shared)` for all members at once, in one program.

    One member carries no extra axis: a single run pays nothing for sweeps.
    """
    if num_members == 1:
        return function
    if is_unsplit_cpu(mesh):
        # XLA's batched matrix products are slower on a CPU than one after another (benchmarks/).
        return _one_after_another(function, mesh)
    # The name puts the members' axis into every sharding constraint inside `function`, which was
    # written for one member: without it each device would hold, and compute, all of them.
    return lambda state, member, *shared: jax.vmap(
        lambda state, member: function(state, member, *shared), spmd_axis_name="sweep"
    )(state, member)


def is_unsplit_cpu(mesh: Mesh) -> bool:
    """Whether each device is a CPU that has members whole: nothing of one lies on another."""
    return mesh.size == mesh.shape.get("sweep") and mesh.devices.flat[0].platform == "cpu"


def _one_after_another(function: Callable, mesh: Mesh) -> Callable:
    """Each device takes its own members, one after another, and waits for no other device."""

    def in_turn(state, member, *shared):
        # A device is alone with its members: to what `function` calls, there is no mesh.
        with jax.sharding.use_abstract_mesh(AbstractMesh((), ())):
            return jax.lax.map(lambda one: function(*one, *shared), (state, member))

    if mesh.size == 1:
        return in_turn
    own, everywhere = PartitionSpec("sweep"), PartitionSpec()

    def spread(state, member, *shared):
        specs = (own, own, *(everywhere for _ in shared))
        return jax.shard_map(in_turn, in_specs=specs, out_specs=own, mesh=mesh, check_vma=False)(
            state, member, *shared
        )

    return spread


def compile_step(
    config: ExperimentConfig, num_members: int, mesh: Mesh, shardings: State
) -> Callable:
    """The one program of a stage: `train_step` of all members, jitted.

    Args:
      config: of the stage; what members share.
      num_members: stacked in front of state and member, if more than one.
      mesh: that is set where the program is called.
      shardings: of the state.
    """
    # Scalars go everywhere, since a host can only read what its own devices hold; a lone host can
    # read all, and devices that need nothing of one another do not wait for one another.
    alone = jax.process_count() == 1 and num_members > 1
    scalars = NamedSharding(mesh, PartitionSpec(*(["sweep"] if alone else [])))
    # The state is donated: the new one is written over the old one, or both would have to fit into
    # memory, parameters and two moments each. Whoever needs it later copies it first.
    return program(
        _step,
        program_of(config),
        num_members,
        mesh,
        out_shardings=(shardings, scalars),
        donate=0,
        device_kind=mesh.devices.flat[0].device_kind,
    )


def _step(config: ExperimentConfig, num_members: int, mesh: Mesh) -> Callable:
    return over_members(functools.partial(train_step, config), num_members, mesh)
