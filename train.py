"""Trains a model: `python train.py CONFIG --workdir DIR [dotted.field=value ...]`.

A run is resumed by starting the same command again, and ends as if it had never stopped. It starts
from fresh parameters or another run's (`start_from`), and may have several stages
(`experiment.stages`). `sweep.py` calls `train` with several members; everything here is written for
one.
"""

import dataclasses
import functools
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from rich.console import Console

from data import pipeline
from data.prepare import prepare
from data.tokenizer import Tokenizer
from experiment import distributed, metrics, optimizer, overrides
from experiment.checkpoint import (
    Checkpoints,
    DataState,
    shape_difference,
    starting_params,
)
from experiment.config import ExperimentConfig
from experiment.mesh import host_rows, make_mesh, put, to_global
from experiment.progress import Interrupts, TrainProgress
from experiment.run import RunDirectory, find_start
from experiment.stages import Stage, at, split
from model import kernels, sharding, transformer
from model.loss import token_nll
from model.positions import PositionTable, position_table
from model.transformer import Params, abstract_params


class State(NamedTuple):
    """What an update changes. A sweep stacks members in front of every array."""

    params: Params
    opt_state: Any


class Member(NamedTuple):
    """All that distinguishes a member of a sweep from the others, as arrays."""

    table: PositionTable
    learning_rate: jax.Array | np.floating


def train_step(
    config: ExperimentConfig,
    state: State,
    member: Member,
    batch: dict[str, jax.Array],
    step: jax.Array,
) -> tuple[State, dict[str, jax.Array]]:
    """One update of one member.

    Args:
      config: only what all members share is read from it.
      state: parameters and optimizer state.
      member: its frequencies and peak learning rate.
      batch: the contract of `data`, `[B, T]` each.
      step: number of this update within the stage, from 0.

    Returns:
      The new state, and scalars: loss (nats a counted target), grad_norm, learning_rate, skipped.
    """
    num_targets = jnp.maximum(batch["loss_mask"].sum(), 1)

    def loss_fn(params: Params, rows: dict[str, jax.Array]) -> jax.Array:
        hidden_BTD = transformer.hidden(
            config.model,
            params,
            member.table,
            rows["tokens"],
            rows["positions"],
            rows["segment_ids"],
        )
        nll_BT = token_nll(config.model, params, hidden_BTD, rows["targets"])
        # Divided by the whole batch's count, so that microbatches simply add up.
        return jnp.sum(nll_BT * rows["loss_mask"]) / num_targets

    loss_and_grad = jax.value_and_grad(loss_fn)
    if config.train.accumulate == 1:
        loss, grads = loss_and_grad(state.params, batch)
    else:
        split = (config.train.accumulate, -1)
        microbatches = jax.tree.map(lambda x: x.reshape(*split, *x.shape[1:]), batch)

        def add(total, rows):
            return jax.tree.map(jnp.add, total, loss_and_grad(state.params, rows)), None

        zero = (jnp.zeros(()), jax.tree.map(jnp.zeros_like, state.params))
        (loss, grads), _ = jax.lax.scan(add, zero, microbatches)

    learning_rate = member.learning_rate * optimizer.learning_rate_fraction(config.train, step)
    updates, opt_state = optimizer.direction(config.train).update(
        grads, state.opt_state, state.params
    )
    updates = jax.tree.map(lambda update: -learning_rate * update, updates)
    params = jax.tree.map(jnp.add, state.params, updates)
    updated = State(params, opt_state)

    grad_norm = optax.global_norm(grads)
    finite = jnp.isfinite(loss) & jnp.isfinite(grad_norm)
    # Select, never multiply: 0 x NaN is NaN.
    state = jax.tree.map(lambda new, old: jnp.where(finite, new, old), updated, state)
    scalars = {
        "loss": loss,
        "grad_norm": grad_norm,
        "learning_rate": learning_rate,
        "skipped": ~finite,
    }
    return state, scalars


def over_members(function: Callable, num_members: int, mesh: Mesh) -> Callable:
    """`function(state, member, batch, step)` for all members at once, in one program.

    One member carries no extra axis. On a lone CPU device members run in turn inside the program:
    XLA's batched products are slower there than one after another (benchmarks/).
    """
    if num_members == 1:
        return function
    if is_lone_cpu(mesh):
        return lambda state, member, batch, step: jax.lax.map(
            lambda one: function(*one, batch, step), (state, member)
        )
    return jax.vmap(function, in_axes=(0, 0, None, None), spmd_axis_name="sweep")


def compiled_step(
    config: ExperimentConfig, num_members: int, mesh: Mesh, shardings: State
) -> Callable:
    """The one program of a stage: `train_step` of all members, jitted; the state is donated.

    Args:
      config: of the stage; what members share.
      num_members: stacked in front of state and member, if more than one.
      mesh: that is set where the program is called.
      shardings: of the state.
    """
    step = over_members(functools.partial(train_step, config), num_members, mesh)
    everywhere = NamedSharding(mesh, PartitionSpec())  # every host logs
    return jax.jit(step, donate_argnums=0, out_shardings=(shardings, everywhere))


def is_lone_cpu(mesh: Mesh) -> bool:
    """Whether all there is is one CPU device."""
    return mesh.size == 1 and mesh.devices.flat[0].platform == "cpu"


def fresh_state(config: ExperimentConfig, seed: jax.Array) -> State:
    """Initial parameters and optimizer state of one member."""
    params = transformer.init(config.model, seed)
    return State(params, optimizer.direction(config.train).init(params))


def abstract_state(config: ExperimentConfig, num_members: int, mesh: Mesh) -> State:
    """Shapes, dtypes and shardings of the training state, members stacked in front if several."""
    stacked = num_members > 1
    make_state = lambda seed: fresh_state(config, seed)  # noqa: E731
    seeds = stack([np.uint32(0)] * num_members)
    state = jax.eval_shape(jax.vmap(make_state) if stacked else make_state, seeds)
    params = sharding.parameter_shardings(config.model, mesh, members=stacked)
    opt_state = sharding.like_parameters(params, state.opt_state, mesh, members=stacked)
    return jax.tree.map(
        lambda leaf, where: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where),
        state,
        State(params, opt_state),
    )


def stack_members(stages: Sequence[Stage]) -> Member:
    """What distinguishes members in a stage, stacked if there are several."""
    return stack(
        [
            Member(
                position_table(stage.config.model, stage.config.data.context_length),
                np.float32(stage.config.train.learning_rate),
            )
            for stage in stages
        ]
    )


class Plan(NamedTuple):
    """What is to be trained, checked. What members share is read from the first.

    Attributes:
      configs: one a member, `start_from` with its step.
      stages: one tuple a stage, holding each member's `Stage`.
      prepared: where each stage's data is.
      mesh: the same in all stages.
      start_step: updates done already.
      params: to start from instead of fresh ones, members stacked; None if there are none.
    """

    configs: list[ExperimentConfig]
    stages: list[tuple[Stage, ...]]
    prepared: list[Path]
    mesh: Mesh
    start_step: int
    params: Params | None


def check(configs: Sequence[ExperimentConfig], runs: Sequence[RunDirectory]) -> Plan:
    """Finds what is wrong with a run, in any of its stages, before anything is written or compiled.

    Args:
      configs, runs: as in `train`.

    Raises:
      ValueError: for anything the user has to mend; in all processes, if in one.
    """
    with distributed.refusing_together():
        plan = _check(configs, runs)
    # The disk may show a checkpoint to one host before another.
    return plan._replace(start_step=distributed.of_first(plan.start_step))


def _check(configs: Sequence[ExperimentConfig], runs: Sequence[RunDirectory]) -> Plan:
    metrics.check_trackers(configs[0].train.tracking)
    configs = [run.pinned(config) for run, config in zip(runs, configs, strict=True)]
    for run, config in zip(runs, configs, strict=True):
        run.check_resumable(config)
    stages = list(zip(*map(split, configs), strict=True))
    shapes = abstract_params(configs[0].model)
    for stage, *_ in stages:
        mesh = make_mesh(stage.config, len(configs))
        difference = shape_difference(abstract_params(stage.config.model), shapes)
        if difference:
            raise ValueError(
                f"stage {stage.number}: {difference} in stage 0; stages share one set of parameters"
            )

    start_step = max(set.intersection(*(set(run.steps()) for run in runs)), default=0)
    started_from = [c for c in configs if c.start_from] if start_step == 0 else []
    params = [starting_params(config) for config in started_from]
    tokenizers = {}
    for config in started_from:
        parent, _ = find_start(str(config.start_from))
        tokenizers[f"start_from={config.start_from}"] = parent.tokenizer_path
    prepared = []
    for stage, *_ in stages:
        prepared.append(prepare(stage.config.data))
        open_rows(stage, prepared[-1], stage.start, mesh)  # refuses a row that does not fit
        tokenizers[f"stage {stage.number}"] = prepared[-1] / "tokenizer.model"
    (first, path), *others = tokenizers.items()
    vocab_size, room = Tokenizer(path).vocab_size, configs[0].model.vocab_size
    if vocab_size > room:
        raise ValueError(
            f"the tokenizer has {vocab_size} ids but model.vocab_size={room}; "
            f"use model.vocab_size={-(-vocab_size // 128) * 128}"
        )
    for name, other in others:
        if Tokenizer(other) != Tokenizer(path):
            raise ValueError(
                f"{name} has another tokenizer than {first}; use data.tokenizer={path}"
            )
    return Plan(
        configs,
        stages,
        prepared,
        make_mesh(configs[0], len(configs)),
        start_step,
        stack(params) if params else None,
    )


def open_rows(stage: Stage, prepared: Path, step: int, mesh: Mesh) -> Iterator[pipeline.Batch]:
    """This host's batches of a stage, from update number `step` of the run on."""
    data = stage.config.data
    rows = host_rows(mesh, data.batch_size).rows
    return pipeline.batches(data, prepared, start_step=step - stage.rows_from, host_rows=rows)


def train(
    configs: Sequence[ExperimentConfig],
    runs: Sequence[RunDirectory],
    *,
    given_overrides: Sequence[Sequence[str]] = (),
    command: str = "",
) -> bool:
    """Trains members that differ in arrays only, each into its own run directory.

    Args:
      configs: equal, in each stage, but for the rotary schedule, the window and the learning rate,
        and for the seed and the run started from.
      runs: where each goes; a finished or unfinished run of the same config is continued.
      given_overrides: of each member, recorded in its config.json.
      command: what to type to go on, for the message after an interruption.

    Returns:
      Whether training reached its last step; False if a signal stopped it.

    Raises:
      ValueError: for anything the user has to mend, before compute is spent.
    """
    plan = check(configs, runs)
    configs, config, mesh = plan.configs, plan.configs[0], plan.mesh
    if distributed.is_first():
        for run, member_config, given in zip(
            runs, configs, given_overrides or [()] * len(runs), strict=True
        ):
            if not (run.path / "config.json").exists():
                run.write_config(member_config, given)
            if not run.tokenizer_path.exists():
                temporary = run.tokenizer_path.with_suffix(".partial")
                shutil.copyfile(plan.prepared[0] / "tokenizer.model", temporary)
                os.replace(temporary, run.tokenizer_path)
    distributed.wait_for_all("run directories are made")

    fingerprints = [
        pipeline.fingerprint(stage.config.data, prepared)
        for (stage, *_), prepared in zip(plan.stages, plan.prepared, strict=True)
    ]
    stage_ends = [stage.end for stage, *_ in plan.stages]
    checkpoints = [Checkpoints(run, keep=config.train.keep, always=stage_ends) for run in runs]
    target = abstract_state(config, len(runs), mesh)
    shardings = jax.tree.map(lambda leaf: leaf.sharding, target)
    if plan.start_step:
        state, data_state = restore(checkpoints, plan.start_step, config, target)
        fingerprint = fingerprints[at(config, plan.start_step).number]
        if data_state.fingerprint != fingerprint:
            raise ValueError(
                f"{runs[0].path} was trained on other data (fingerprint {data_state.fingerprint}, "
                f"now {fingerprint}); restore {config.data.path or 'the source'} or use a new "
                "--workdir"
            )
    else:
        state = start(configs, shardings, plan.params)
        data_state = DataState(fingerprint=fingerprints[0])
    stacked = len(runs) > 1
    make_optimizer = optimizer.direction(config.train).init
    make_optimizer = jax.jit(
        jax.vmap(make_optimizer) if stacked else make_optimizer, out_shardings=shardings.opt_state
    )
    logs = []
    if distributed.is_first():
        logs = [metrics.MetricsLog(run, config, after_step=plan.start_step) for run in runs]

    console = Console(stderr=True, quiet=not distributed.is_first())
    step, num_steps = plan.start_step, stage_ends[-1]
    console.print(
        f"{config.name}: {transformer.describe_size(config.model)}"
        f"{' in each member' if stacked else ''}",
        highlight=False,
    )
    label = config.name + (f" x {len(runs)} members" if stacked else "")
    if step == num_steps:
        console.print(f"{label}: finished already, all {num_steps} steps")
    elif step:
        console.print(f"{label}: going on from step {step}")

    advice = "Start all of them again: the run goes on from its last checkpoint."
    with distributed.failing_together(advice), Interrupts() as interrupts, jax.set_mesh(mesh):
        for stages, prepared, fingerprint in zip(
            plan.stages, plan.prepared, fingerprints, strict=True
        ):
            stage = stages[0]
            if step >= stage.end or interrupts.received:
                continue
            if step == stage.start > 0:
                state = state._replace(opt_state=make_optimizer(state.params))
            data_state = dataclasses.replace(data_state, fingerprint=fingerprint)
            progress = TrainProgress(
                console,
                label + (f", stage {stage.number}" if len(plan.stages) > 1 else ""),
                start_step=step,
                end_step=stage.end,
                tokens_per_step=stage.config.data.batch_size * stage.config.data.context_length,
            )
            with progress:
                state, data_state, step = train_stage(
                    stages,
                    state,
                    data_state,
                    step,
                    open_rows(stage, prepared, step, mesh),
                    mesh=mesh,
                    shardings=shardings,
                    checkpoints=checkpoints,
                    logs=logs,
                    interrupts=interrupts,
                    progress=progress,
                )
        for closing in (*checkpoints, *logs):
            closing.close()

    if step < num_steps:
        again = f"run the same command again{': ' + command if command else '.'}"
        if jax.process_count() > 1:
            again = "start all processes again."
        console.print(
            f"stopped by {interrupts.received} at step {step} of {num_steps}; saved. "
            f"To go on, {again}"
        )
        return False
    return True


def start(configs: Sequence[ExperimentConfig], shardings: State, params: Params | None) -> State:
    """The state before the first update: fresh, or with the parameters of another run."""
    make_state = functools.partial(fresh_state, configs[0])
    make_state = make_state if len(configs) == 1 else jax.vmap(make_state)
    seeds = stack([np.uint32(config.seed) for config in configs])
    state = jax.jit(make_state, out_shardings=shardings)(seeds)
    return state if params is None else state._replace(params=put(params, shardings.params))


def restore(
    checkpoints: Sequence[Checkpoints], step: int, config: ExperimentConfig, target: State
) -> tuple[State, DataState]:
    """The state at `step`, as `target` has it: each device reads its own part.

    Members of a sweep are read whole by every host and stacked there.
    """
    if len(checkpoints) == 1:
        *state, data_state = checkpoints[0].restore(step, *target)
        return State(*state), data_state
    one = jax.eval_shape(lambda: fresh_state(config, jnp.uint32(0)))
    one = jax.tree.map(lambda leaf: np.empty(leaf.shape, leaf.dtype), one)
    restored = [checkpoint.restore(step, *one) for checkpoint in checkpoints]
    members = stack([State(params, opt_state) for params, opt_state, _ in restored])
    return put(members, jax.tree.map(lambda leaf: leaf.sharding, target)), restored[0][2]


def train_stage(
    stages: Sequence[Stage],
    state: State,
    data_state: DataState,
    step: int,
    batches: Iterator[pipeline.Batch],
    *,
    mesh: Mesh,
    shardings: State,
    checkpoints: Sequence[Checkpoints],
    logs: Sequence[metrics.MetricsLog],
    interrupts: Interrupts,
    progress: TrainProgress,
) -> tuple[State, DataState, int]:
    """Goes on from update number `step` to the stage's end, or to a signal; saves at either.

    Args:
      stages: the same stage of each member.
      state: parameters and optimizer state, members stacked in front if there are several.
      data_state: rows consumed so far.
      step: updates done, of the whole run.
      batches: from this step on.
      mesh, shardings: of all devices, and of `state` on them.
      checkpoints, logs: of each member.
      interrupts: looked at before each update.
      progress: what the user sees.

    Returns:
      State, rows and step as they are then.
    """
    stage, config, num_members = stages[0], stages[0].config, len(stages)
    member = stack_members(stages)
    step_fn = compiled_step(config, num_members, mesh, shardings)
    host = host_rows(mesh, config.data.batch_size)
    digest = 0  # of the rows that this host has to count, since the last save
    if not is_lone_cpu(mesh):
        num_rows = config.data.batch_size // config.train.accumulate
        progress.announce(kernels.check(config.model, num_rows, config.data.context_length))

    tokens_per_step = config.data.batch_size * config.data.context_length
    flops_per_step = tokens_per_step * num_members * metrics.flops_per_token(config)
    peak = metrics.peak_flops()
    pending: tuple[int, dict[str, jax.Array]] | None = None

    def log_pending() -> None:
        """Fetches the scalars of a step already done while the next one runs."""
        nonlocal pending
        if pending is None:
            return
        (done, scalars), pending = pending, None
        values = {name: np.atleast_1d(np.asarray(x)) for name, x in scalars.items()}
        seconds_per_step = progress.seconds_per_step(done)
        tokens = stage.tokens_before + (done - stage.start) * tokens_per_step
        rates = {
            "seconds": round(progress.elapsed(), 3),
            "tokens_per_second": round(tokens_per_step / seconds_per_step, 1),
            "mfu": round(flops_per_step / seconds_per_step / peak, 4) if peak else None,
        }
        for index, log in enumerate(logs):
            row = {name: x[index].item() for name, x in values.items()}
            log.write({"step": done, "tokens": tokens, **row, **rates})
        num_skipped = int(values["skipped"].sum())
        progress.log(done, values["loss"], rates["tokens_per_second"], num_skipped)

    def save(step: int) -> None:
        nonlocal data_state, digest
        log_pending()
        total = data_state.digest + distributed.sum_of_all(digest)
        data_state, digest = dataclasses.replace(data_state, digest=total % 2**64), 0
        for log in logs:
            log.sync()
        members = members_of(state, num_members, shardings)
        for checkpoint, one, own in zip(checkpoints, members, stages, strict=True):
            checkpoint.save(step, one.params, one.opt_state, data_state, own.config)

    first_step = saved_step = step
    while step < stage.end and not interrupts.stops_at(step):
        batch = next(batches)
        digest += int(batch.pop("row_hash")[host.counted].sum(dtype=np.uint64))
        rows = to_global(batch, mesh, config.data.batch_size, host.rows)
        state, scalars = step_fn(state, member, rows, np.int32(step - stage.start))
        step += 1
        if step == first_step + 1:
            jax.block_until_ready(scalars)
            progress.restart_clock(step)
        data_state = dataclasses.replace(data_state, rows=data_state.rows + config.data.batch_size)
        log_pending()
        if step % config.train.log_every == 0 or step == stage.end:
            pending = (step, scalars)
        if step % config.train.save_every == 0 or step == stage.end:
            save(step)
            saved_step = step
        progress.advance(step)
    if step > saved_step:
        save(step)
    log_pending()
    return state, data_state, step


def members_of(state: State, num_members: int, shardings: State) -> Iterator[State]:
    """Each member's state, as a copy: the next step donates `state` while the save still reads.

    One program a member, waited for: apart, the slices of many arrays may meet in another order on
    another host, and wait for one another forever.
    """
    if num_members == 1:
        yield jax.tree.map(jnp.copy, state)
        return
    one = jax.tree.map(lambda x: NamedSharding(x.mesh, PartitionSpec(*x.spec[1:])), shardings)
    for index in range(num_members):
        take = jax.jit(
            lambda state, index=index: jax.tree.map(lambda x: x[index], state), out_shardings=one
        )
        yield jax.block_until_ready(take(state))


def stack(trees: Sequence[Any]) -> Any:
    """Members stacked in front; one member is left as it is."""
    return trees[0] if len(trees) == 1 else jax.tree.map(lambda *x: np.stack(x), *trees)


def main() -> int:
    """Command line of a single run."""
    parser = overrides.argument_parser("train.py", __doc__)
    distributed.add_arguments(parser)
    arguments = parser.parse_intermixed_args()
    try:
        distributed.initialize(arguments)
        with distributed.refusing_together():
            config = overrides.apply(overrides.find_config(arguments.config), arguments.overrides)
            run = RunDirectory(arguments.workdir)
        command = " ".join(["python", *sys.argv])
        finished = train([config], [run], given_overrides=[arguments.overrides], command=command)
        if finished and distributed.is_first():
            print(f"finished. Next: python evaluate.py {run.path}", file=sys.stderr)
    except ValueError as error:
        parser.exit(2, f"train.py: error: {error}\n" if distributed.is_first() else None)
    except KeyboardInterrupt:  # before the first step there is nothing to save
        return 130
    return 0 if finished else 130


if __name__ == "__main__":
    sys.exit(main())
