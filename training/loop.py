"""The training loop, from the first update to the last, top to bottom.

A run is resumed by starting it again, and ends as if it had never stopped: rows are functions of
their number, and a checkpoint holds all else that an update reads. It starts from fresh parameters
or another run's (`start_from`), and may have several stages (`experiment.stages`).
"""

import dataclasses
import functools
from collections.abc import Callable

import jax
import numpy as np
from rich.console import Console

from data import pipeline
from experiment import distributed
from experiment.mesh import host_rows, make_global_batch
from experiment.metrics import MetricsLog
from model import kernels, transformer
from training import compiling
from training.divergence import DivergedError, Divergence
from training.holding import run_lock
from training.interrupts import Interrupts
from training.log import StageLog
from training.members import (
    abstract_state,
    member_arrays,
    open_state,
    remove_old,
    shardings_of,
    unstack,
    with_fresh_moments,
)
from training.plan import Plan, write_records
from training.step import compile_step, is_unsplit_cpu
from training.trace import Trace
from training.validation import Ask, Validation


def train(plan: Plan, *, command: str = "", ask: Ask | None = None) -> bool:
    """Trains members that differ in arrays only, each into its own run directory.

    Args:
      plan: what is to be trained, checked.
      command: what was typed, recorded in each run; said again after an interruption.
      ask: what `train.eval_tasks` ask of parameters, made by the caller (`evals.while_training`):
        evaluation is built on what training is built on, not on training.

    Returns:
      Whether training reached its last step; False if a signal stopped it.

    Raises:
      ValueError: if another process trains there, what was trained before was trained on other
        data, or none of it is whole.
      DivergedError: if no member trains any more; what there is has been saved.
    """
    with run_lock(plan) as check_held:
        write_records(plan, command)
        return _train(plan, command, ask, check_held)


def _train(plan: Plan, command: str, ask: Ask | None, check_held: Callable[[], None]) -> bool:
    """From the first update to the last, top to bottom."""
    config, mesh, num_members = plan.configs[0], plan.mesh, len(plan.runs)
    num_steps = plan.stages[-1][0].end
    console = Console(stderr=True, quiet=not distributed.is_primary_host())
    notice = functools.partial(console.print, highlight=False, markup=False, soft_wrap=True)
    label = config.name + (f" x {num_members} members" if num_members > 1 else "")
    size = transformer.describe_size(config.model)
    each = " in each member" if num_members > 1 else ""
    console.print(f"{config.name}: {size}{each}", highlight=False)

    # Restore, or initialise.
    target = abstract_state(config, num_members, mesh)
    shardings = shardings_of(target)
    checkpoints, state, data_state, step = open_state(plan, target, notice)
    if step:
        finished = f"finished already, all {num_steps} steps"
        console.print(f"{label}: {finished if step == num_steps else f'going on from step {step}'}")
    divergence = Divergence(plan.runs, config.train.max_skipped, num_steps, console)
    divergence.look(step, np.atleast_1d(distributed.fetch(state.skipped)))
    logs = []
    if distributed.is_primary_host():
        logs = [MetricsLog(run, config, after_step=step, notice=notice) for run in plan.runs]

    advice = "Start all of them again: the run goes on from its last checkpoint."
    with distributed.failing_together(advice), Interrupts() as interrupts, jax.set_mesh(mesh):
        for stages, data in zip(plan.stages, plan.data, strict=True):
            stage, config = stages[0], stages[0].config
            if step >= stage.end or interrupts.received or divergence.everywhere:
                continue

            # Data: this host's rows, from the first one that no update has read.
            batch_size, length = config.data.batch_size, config.data.context_length
            host = host_rows(mesh, batch_size)
            batches = pipeline.make_batches(
                data, start_step=step - stage.rows_from, host_rows=host.rows
            )
            data_state = dataclasses.replace(data_state, fingerprint=data.fingerprint)
            digest = 0  # of the rows that this host has to count, since the last save

            # Compile. A stage is a run of its own: its moments begin at zero.
            if step == stage.start > 0:
                state = with_fresh_moments(state, config, num_members, shardings)
            member = member_arrays(stages)
            step_fn = compile_step(config, num_members, mesh, shardings)
            name = label + (f", stage {stage.number}" if len(plan.stages) > 1 else "")
            every = config.train.eval_every
            validation = Validation(stages, data, mesh, shardings, ask) if every else None
            trace = Trace(plan.runs[0].path / "profile", config.train.profile_steps)
            with StageLog(console, name, stage, logs, divergence) as log, trace:
                if not is_unsplit_cpu(mesh):
                    rows = batch_size // config.train.accumulate
                    log.announce(kernels.check(config.model, rows, length))
                    if told := compiling.describe(mesh.devices.flat[0].device_kind):
                        log.announce(told)

                first_step = saved_step = step
                while True:
                    # Save: when due, at the stage's end, and before stopping.
                    stops = step == stage.end or interrupts.stops_at(step) or divergence.everywhere
                    if step > saved_step and (stops or step % config.train.save_every == 0):
                        # Metrics first: a checkpoint must not outlive the rows that lead to it,
                        # for a resumed run writes none of them again.
                        check_held()
                        log.sync()
                        total = data_state.digest + distributed.sum_over_hosts(digest)
                        data_state = dataclasses.replace(data_state, digest=total % 2**64)
                        members = unstack(state, num_members, shardings)
                        logged = [each.record() for each in logs] or [None] * num_members
                        for run, one, own, metrics in zip(
                            checkpoints, members, stages, logged, strict=True
                        ):
                            skipped = dataclasses.replace(
                                data_state, skipped_in_row=int(one.skipped)
                            )
                            run.save(step, one.params, one.opt_state, skipped, own.config, metrics)
                        saved_step, digest = step, 0
                    log.advance(step)
                    if stops:
                        break

                    # Data. Where hosts read the same rows, one of them counts each: the digest says
                    # which rows were seen, whatever the number of hosts.
                    batch = next(batches)
                    digest += int(batch.pop("row_hash")[host.counted].sum(dtype=np.uint64))
                    batch = make_global_batch(batch, mesh, batch_size, host.rows)
                    data_state = dataclasses.replace(data_state, rows=data_state.rows + batch_size)

                    # Step. This only queues it: the devices compute while the host goes on.
                    trace.before(step + 1)
                    state, scalars = step_fn(state, member, batch, np.int32(step - stage.start))
                    step += 1
                    trace.after(step, scalars)
                    if step == first_step + 1:
                        jax.block_until_ready(scalars)
                        log.start_clock(step)

                    # Log: what an earlier step gave, while this one runs.
                    log.flush()
                    is_due = step % config.train.log_every == 0 or step == stage.end

                    # Evaluate: the loss is queued behind the step, and fetched as late as it.
                    if validation and (step % every == 0 or step == stage.end):
                        is_due = True
                        scalars |= validation(state.params, member)
                    if is_due:
                        log.put(step, scalars)
        for closing in (*checkpoints, *logs):
            closing.close()
        remove_old(plan, step)

    if divergence.everywhere:
        raise DivergedError(str(divergence))
    if str(divergence):
        notice(str(divergence))
    if step < num_steps:
        console.print(
            f"stopped by {interrupts.received} at step {step} of {num_steps}; saved. "
            f"{distributed.how_to_go_on(command)}"
        )
    return step == num_steps
