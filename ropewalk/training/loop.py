"""The training loop.

Starting a run again resumes it, and the result is as if it had never stopped: rows are functions of
their number, and a checkpoint holds everything else that an update reads. A run starts from fresh
parameters or from those of another run (`start_from`), and may have several stages
(`experiment.stages`).
"""

import dataclasses
from collections.abc import Callable, Collection
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from ropewalk.data import pipeline
from ropewalk.experiment import distributed
from ropewalk.experiment.checkpoint import Checkpoints, DataState
from ropewalk.experiment.mesh import host_rows, make_global_batch
from ropewalk.experiment.metrics import MetricsLog
from ropewalk.experiment.run import common_steps
from ropewalk.experiment.stages import Stage
from ropewalk.model import kernels, transformer
from ropewalk.training.interrupts import Interrupts
from ropewalk.training.log import DivergedError, Divergence, StageLog, Trace, make_console
from ropewalk.training.members import first_state, shardings_of, unstack, with_fresh_moments
from ropewalk.training.plan import Plan
from ropewalk.training.programs import member_arrays
from ropewalk.training.progress import Progress, read_progress
from ropewalk.training.restore import restore_newest, set_later_aside
from ropewalk.training.step import State, compile_step, is_unsplit_cpu
from ropewalk.training.validation import Validation
from ropewalk.utils.errors import UnreachableError
from ropewalk.utils.messages import counted


def train(
    plan: Plan, check_lock: Callable[[], None], *, command: str = "", later_tokens: int = 0
) -> bool | None:
    """Train members that differ in arrays only, each into its own run directory.

    Args:
      plan: the checked plan.
      check_lock: raises ValueError if another process trains these runs by now.
      command: the command line, repeated after an interruption.
      later_tokens: tokens that the job trains on after this plan, for the remaining time.

    Returns:
      Whether training reached its end; False if a signal stopped it; None if some members were
      stopped early (`train.stop_after`), and the others go on without them.

    Raises:
      ValueError: if another process trains there, if the run was trained on other data, or if no
        checkpoint is intact.
      DivergedError: if all members diverged; the state has been saved.
    """
    trainer = Trainer(plan, check_lock)
    advice = "Start all of them again: the run resumes from its last checkpoint."
    with distributed.failing_together(advice), trainer.interrupts, jax.set_mesh(plan.mesh):
        for stages, data in zip(plan.stages, plan.data, strict=True):
            is_stopped = trainer.interrupts.received or trainer.divergence.everywhere
            if trainer.step < stages[0].end and not is_stopped:
                later = sum(s.tokens for s, *_ in plan.stages if s.start >= stages[0].end)
                train_stage(trainer, stages, data, later_tokens + later)
            if trainer.is_apart:
                break
        trainer.close()
    if trainer.is_apart:
        return None
    if trainer.divergence.everywhere:
        raise DivergedError(str(trainer.divergence))
    if str(trainer.divergence):
        trainer.console.print(str(trainer.divergence))
    if trainer.step < plan.num_steps:
        trainer.console.print(
            f"stopped by {trainer.interrupts.received} at step {trainer.step} of {plan.num_steps}; "
            f"saved. {distributed.how_to_go_on(command)}"
        )
    elif trainer.summary:
        path = plan.runs[0].path if len(plan.runs) == 1 else plan.runs[0].path.parent
        steps = counted(plan.num_steps - sum(trainer.left_out.values()), "steps")
        trainer.console.print(f"{trainer.label}: trained {steps}, {trainer.summary}: {path}")
    return trainer.step == plan.num_steps


class Trainer:
    """The state of a training process.

    Attributes:
      plan: the checked plan.
      label: name of the config and number of members, for messages.
      console: where progress is printed; quiet except on the primary host.
      check_lock: raises ValueError if another process trains these runs by now.
      checkpoints: one per member.
      logs: one per member on the primary host, none on the others.
      divergence: which members have diverged.
      interrupts: signals received.
      shardings: of `state`.
      state: parameters, optimizer state, and skipped updates of all members.
      data_state: rows consumed up to the last save.
      step: number of updates done, and of those that an early stop left out.
      progress: validation losses of each member.
      best_steps: steps that have been the best of their stage, of each member.
      is_apart: whether some members, and not all, were stopped early.
      summary: loss and tokens per second of the last stage trained; empty before.
    """

    def __init__(self, plan: Plan, check_lock: Callable[[], None]):
        """Restore or initialize the state."""
        config, num_members = plan.config, len(plan.runs)
        self.plan, self.check_lock = plan, check_lock
        self.console = make_console()
        members = f" x {num_members} members" if num_members > 1 else ""
        per_member = " in each member" if num_members > 1 else ""
        self.label = config.name + members
        size = transformer.describe_size(config.model)
        self.console.print(f"{config.name}: {size}{per_member}")

        self.state, self.data_state, self.step = open_state(plan, self.console.print)
        set_later_aside(plan.runs, self.step, self.console.print)
        self.shardings = shardings_of(self.state)
        ends = [stage.end for stage, *_ in plan.stages]  # results, which are always kept
        keep = config.train.keep
        self.checkpoints = [Checkpoints(run, keep=keep, always=ends) for run in plan.runs]
        self.progress = [read_progress(run, self.step) for run in plan.runs]
        self.best_steps = [{*progress.best_steps} for progress in self.progress]
        self.is_apart = False
        at_step = self.step
        self.step += self.left_out.get(at_step, 0)  # the stage was stopped early
        if at_step:
            text = f"resuming from step {at_step}"
            if self.step == plan.num_steps:
                text = f"finished already, {counted(at_step, 'steps')}"
            self.console.print(f"{self.label}: {text}")
        self.divergence = Divergence(plan, self.console)
        self.divergence.update(self.step, np.atleast_1d(distributed.fetch(self.state.skipped)))
        self.logs = [
            MetricsLog(run, config, after_step=at_step, notice=self.console.print)
            for run in (plan.runs if distributed.is_primary_host() else ())
        ]
        self.interrupts = Interrupts()
        self.summary = ""

    @property
    def left_out(self) -> dict[int, int]:
        """Number of updates left out at each step at which members, all alike, were stopped."""
        return {s: self.plan.stage_of(s).end - s for s in self.progress[0].stops}

    def compare(self, stage: Stage, losses: Any) -> tuple[bool, bool]:
        """Compare validation losses with earlier ones; return whether to save, and to stop early.

        Args:
          stage: the stage that is trained.
          losses: one number, or one per member.
        """
        train, before = stage.config.train, self.progress
        if not (train.stop_after or train.keep_best):
            return False, False
        pairs = zip(before, np.atleast_1d(np.asarray(losses)).tolist(), strict=True)
        self.progress = [member.after(stage, self.step, loss) for member, loss in pairs]
        for steps, member in zip(self.best_steps, self.progress, strict=True):
            steps.update(member.best_steps)
        is_better = any(self.step in member.best_steps for member in self.progress)
        for run, member in zip(self.plan.runs, self.progress, strict=True):
            if self.step in member.stops:
                self.console.print(
                    f"{run.path}: stopped early at step {self.step} of {stage.end}: "
                    f"{member.num_worse} evaluations without a lower validation loss than "
                    f"{member.best_loss:.4f}, of step {member.best_steps[-1]}"
                )
        return train.keep_best and is_better, any(self.step in x.stops for x in self.progress)

    def close(self) -> None:
        """Finish all saves, and remove checkpoints that the config does not keep."""
        for checkpoints in self.checkpoints:
            checkpoints.close()
        self.remove_old(self.step)
        for log in self.logs:
            log.close()

    def remove_old(self, newest: int) -> None:
        """Remove checkpoints up to step `newest` that the config does not keep."""
        skipped = np.atleast_1d(distributed.fetch(self.state.skipped)).tolist()
        if distributed.is_primary_host():
            complete = [step for step in common_steps(self.plan.runs) if step <= newest]
            for number, checkpoints in enumerate(self.checkpoints):
                kept = self._best_of(self.best_steps[number] & {*self.plan.runs[number].steps()})
                kept += self.progress[number].stops
                checkpoints.remove_old(complete, self.step, skipped[number], kept)

    def _best_of(self, steps: Collection[int]) -> tuple[int, ...]:
        """Return the last of `steps` in each stage: the best that is on disk."""
        if not self.plan.config.train.keep_best:
            return ()
        stages = (stage for stage, *_ in self.plan.stages)
        return tuple(max((s for s in steps if x.start < s <= x.end), default=0) for x in stages)


def open_state(plan: Plan, notice: Callable[[str], None]) -> tuple[State, DataState, int]:
    """Return the restored or initial state, the rows consumed, and the step.

    Args:
      plan: the complete plan.
      notice: called with one line for each damaged checkpoint.

    Raises:
      ValueError: if the run was trained on other data, or no checkpoint is intact.
    """
    if not plan.start_step:
        configs = [member.config for member in plan.members]
        state = first_state(configs, shardings_of(plan.targets[0]), plan.params)
        return state, DataState(fingerprint=plan.data[0].fingerprint), 0
    state, data_state, step = restore_newest(plan.runs, plan.steps, plan.target_at, notice)
    stage = plan.stage_of(step)
    plan.runs[0].refuse_other_texts([data_state.fingerprint], [plan.data[stage.number].fingerprint])
    return state, data_state, step


def train_stage(
    trainer: Trainer, stages: tuple[Stage, ...], data: pipeline.TrainingData, later_tokens: int
) -> None:
    """Train one stage of all members, to its end or until the trainer is stopped.

    Args:
      trainer: updated in place.
      stages: the stage of each member. Members share everything but arrays.
      data: rows of the stage.
      later_tokens: tokens that the job trains on after the stage.
    """
    plan, stage, config = trainer.plan, stages[0], stages[0].config
    num_members, mesh = len(plan.runs), plan.mesh
    batches = _Batches(stage, data, mesh, trainer)
    if trainer.step == stage.start:
        trainer.progress = [member.in_new_stage() for member in trainer.progress]
    if trainer.step == stage.start > 0:  # the optimizer state of a new stage starts at zero
        trainer.shardings = shardings_of(plan.targets[stage.number])
        trainer.state = with_fresh_moments(trainer.state, config, num_members, trainer.shardings)
    member = member_arrays(stages)
    step_fn = compile_step(config, num_members, mesh, trainer.shardings)
    validation = None
    if config.train.eval_every:
        validation = Validation(stages, data, mesh, trainer.shardings)
    trace = Trace(plan.runs[0].path / "profile", config.train.profile_steps)
    name = trainer.label + (f", stage {stage.number}" if len(plan.stages) > 1 else "")
    left_out = sum(
        count * plan.stage_of(s).tokens_per_step for s, count in trainer.left_out.items()
    )
    logged = [s._replace(tokens_before=s.tokens_before - left_out) for s in stages]
    log = StageLog(trainer.console, name, logged, trainer.logs, trainer.divergence, later_tokens)
    with log, trace:
        if not is_unsplit_cpu(mesh):
            trainer.console.print(kernels.check(config.model, config.data.context_length))

        first_step = saved_step = step = trainer.step
        is_better = is_early = False
        while True:
            # Save when due, at the end of the stage, and before stopping.
            stops = step == stage.end or trainer.interrupts.stops_at(step)
            stops = stops or trainer.divergence.everywhere or is_early
            due = stops or is_better or step % config.train.save_every == 0
            if step > saved_step and due:
                _save(trainer, stages, batches, log)
                saved_step = step
            log.advance(step)
            if stops:
                trainer.summary = log.summary
                stopped = {step in member.stops for member in trainer.progress}
                trainer.is_apart = len(stopped) > 1 and not trainer.interrupts.received
                if stopped == {True}:
                    trainer.step = stage.end
                return

            # Train. This only queues the step: the devices compute while the host continues.
            batch = _read_next(batches, trainer, stages, None if step == saved_step else log)
            if batch is None:
                continue
            trace.before(step + 1)
            trainer.state, scalars = step_fn(
                trainer.state, member, batch, np.int32(step - stage.start)
            )
            step = trainer.step = step + 1
            trace.after(step, scalars)
            if step == first_step + 1:
                jax.block_until_ready(scalars["loss"])  # after the compilation
                log.start_clock(step)

            # Log the scalars of an earlier step while this one runs. The validation loss is queued
            # behind the step, and is fetched as late as its scalars.
            log.flush()
            is_end = step == stage.end
            evaluates = validation and (is_end or step % config.train.eval_every == 0)
            if evaluates or is_end or step % config.train.log_every == 0:
                log.put(step, scalars)
            is_better = is_early = False
            if validation and evaluates:
                scalars = validation(trainer.state.params, member)
                log.add(scalars)
                is_better, is_early = trainer.compare(stage, scalars["val_loss"])


def _read_next(
    batches: "_Batches", trainer: Trainer, stages: tuple[Stage, ...], unsaved: StageLog | None
) -> Any:
    """Return the next batch; None if a signal has reached the data workers too.

    If they died otherwise, save what `unsaved` has logged first.
    """
    try:
        return batches.read_next()
    except UnreachableError:
        if trainer.interrupts.received:
            return None
        if jax.process_count() == 1:
            if unsaved is not None:
                _save(trainer, stages, batches, unsaved)
            trainer.close()
        raise


class _Batches:
    """The batches of a stage, from the first row that no update has read."""

    def __init__(self, stage: Stage, data: pipeline.TrainingData, mesh: Mesh, trainer: Trainer):
        self._mesh, self._batch_size = mesh, stage.config.data.batch_size
        self._host = host_rows(mesh, self._batch_size)
        self._batches = pipeline.make_batches(
            data, start_step=trainer.step - stage.rows_from, host_rows=self._host.rows
        )
        self._before = dataclasses.replace(trainer.data_state, fingerprint=data.fingerprint)
        self._rows = self._digest = 0  # read since then; the digest is of those this host counts

    def read_next(self) -> dict[str, jax.Array]:
        """Return the next batch as global arrays, `[B, T]` each.

        Raises UnreachableError if a data worker was killed.
        """
        try:
            batch = next(self._batches)
        except RuntimeError as error:
            if "terminated unexpectedly" not in str(error):  # as grain says it
                raise
            raise UnreachableError(
                "a data worker was killed, perhaps for lack of memory; the same command goes on; "
                "with data.num_workers=0 it needs no workers"
            ) from error
        # Where hosts read the same rows, one of them counts each row: the digest identifies the
        # rows consumed, whatever the number of hosts.
        self._digest += int(batch.pop("row_hash")[self._host.counted].sum(dtype=np.uint64))
        self._rows += self._batch_size
        return make_global_batch(batch, self._mesh, self._batch_size)

    def data_state(self) -> DataState:
        """Return which rows were consumed; all processes must call this together."""
        rows, digest = self._before.rows, self._before.digest
        digest = (digest + distributed.sum_over_hosts(self._digest)) % 2**64
        return dataclasses.replace(self._before, rows=rows + self._rows, digest=digest)


def _save(trainer: Trainer, stages: tuple[Stage, ...], batches: _Batches, log: StageLog) -> None:
    """Remove old checkpoints, and start saving the state of every member."""
    trainer.check_lock()
    # Metrics first: a resumed run does not write the rows up to its checkpoint again.
    log.sync()
    trainer.data_state = batches.data_state()
    trainer.remove_old(trainer.step - 1)
    members = unstack(trainer.state, len(stages), trainer.shardings)
    metrics = [metrics_log.record() for metrics_log in trainer.logs] or [None] * len(stages)
    for checkpoints, member, stage, record, progress in zip(
        trainer.checkpoints, members, stages, metrics, trainer.progress, strict=True
    ):
        data_state = dataclasses.replace(
            trainer.data_state,
            skipped_in_row=int(member.skipped),
            validation=dataclasses.asdict(progress) if progress != Progress() else {},
        )
        checkpoints.save(
            trainer.step, member.params, member.opt_state, data_state, stage.config, record
        )
