"""The plan of a run: everything is checked before anything is written or compiled."""

import contextlib
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jax.sharding import Mesh

from ropewalk import evals
from ropewalk.data import pipeline
from ropewalk.data import prepare as preparation
from ropewalk.data.config import DataConfig
from ropewalk.data.pipeline import TrainingData, absent_files
from ropewalk.data.tokenizer import Tokenizer
from ropewalk.experiment import distributed
from ropewalk.experiment.checkpoint import shape_difference
from ropewalk.experiment.config import ExperimentConfig, flatten
from ropewalk.experiment.devices import device_memory
from ropewalk.experiment.items import DamagedCheckpointError, check_config
from ropewalk.experiment.mesh import check_stages, make_mesh, mesh_sizes
from ropewalk.experiment.metrics import check_trackers
from ropewalk.experiment.overrides import Member
from ropewalk.experiment.run import RunDirectory, common_steps, find_pruned
from ropewalk.experiment.stages import Stage, split
from ropewalk.model import axes
from ropewalk.model.transformer import Params, abstract_params, describe_size
from ropewalk.training.members import abstract_state, shardings_of, state_bytes
from ropewalk.training.restore import find_matching_start, starting_params
from ropewalk.training.step import State
from ropewalk.utils.files import check_writable
from ropewalk.utils.messages import counted, nearest
from ropewalk.utils.paths import in_bucket

# File and content, by a description of where the tokenizer comes from.
Tokenizers = dict[str, tuple[str | Path, Tokenizer]]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Checked:
    """Settings of members that train together, checked before arrays or texts are read.

    Attributes:
      members: their runs, of which unfinished ones are continued, overrides and configs;
        `start_from` includes the step.
      stages: one tuple per stage, holding each member's `Stage`.
      sources: data config of each stage, with a tokenizer that exists.
      axes: number of devices along each axis of the mesh.
      steps: of the checkpoints that all members have, oldest first.
      tokenizers: those that exist already, of named files and of the runs to start from.
      texts: plans of the preparation of `sources`, but for those that are not on this machine.
    """

    members: Sequence[Member]
    stages: list[tuple[Stage, ...]]
    sources: list[DataConfig]
    axes: dict[str, int]
    steps: Sequence[int]
    tokenizers: Tokenizers
    texts: dict[DataConfig, preparation.Plan]

    @property
    def config(self) -> ExperimentConfig:
        """Config of the first member, for fields that members share."""
        return self.members[0].config

    @property
    def runs(self) -> list[RunDirectory]:
        """Run of each member."""
        return [member.run for member in self.members]

    @property
    def start_step(self) -> int:
        """Step of the newest common checkpoint; 0 if there is none."""
        return max(self.steps, default=0)

    @property
    def num_steps(self) -> int:
        """Number of updates in all stages."""
        return self.stages[-1][0].end

    def stage_of(self, step: int) -> Stage:
        """Return the first member's stage that update number `step` belongs to, or stage 0."""
        return next(stage for stage, *_ in self.stages if step <= stage.end)

    def notes(self) -> list[str]:
        """Return lines about evaluations that a started run keeps, warmup, and ids without text."""
        notes, run = [], self.runs[0]
        if run.is_started() and run.config.evals != self.config.evals:
            notes.append(
                f"note: {run.path} keeps its `evals`; give evaluate.py --tasks and --lengths"
            )
        for stage, *_ in self.stages:
            if 0 < stage.config.train.warmup_steps == stage.config.train.num_steps:
                notes.append(
                    f"note: the learning rate only rises: all {stage.config.train.num_steps} steps "
                    "are warmup; give a smaller train.warmup_steps"
                )
        sizes = {tokenizer.vocab_size for _, tokenizer in self.tokenizers.values()}
        sizes |= {data.vocab_size for data in self.sources if data.tokenizer is None}
        num_ids = self.config.model.vocab_size
        vocab_size = max(sizes, default=num_ids)
        if not self.config.start_from and num_ids - vocab_size > 128:  # no padding of a matrix
            notes.append(
                f"note: the tokenizer has {vocab_size} ids, and the model {num_ids - vocab_size} "
                f"more, which no text uses; model.vocab_size={_padded(vocab_size)} leaves them out"
            )
        return notes

    def _describe_later(self, run: RunDirectory) -> str:
        """Say which checkpoints of `run` other members lack; empty if there are none."""
        later = [str(step) for step in run.steps() if step > self.start_step]
        verb = "are" if len(later) > 1 else "is"
        return f", and {', '.join(later)}, past it, {verb} set aside" if later else ""

    def describe(self) -> list[str]:
        """Return lines that say what was checked."""
        config, num_members = self.config, len(self.members)
        members = f", {num_members} members in one program" if num_members > 1 else ""
        at_step = f"step {self.start_step} of {self.num_steps} is there"
        at_step = at_step if self.start_step else "training starts at step 0"
        starts = dict.fromkeys(
            member.config.start_from for member in self.members if not self.start_step
        )
        dtype = axes.products_dtype(config.model.compute_dtype)
        files = {path: tokenizer.vocab_size for path, tokenizer in self.tokenizers.values()}
        sources = (
            f"data.source={data.source}: {line}"
            for data in dict.fromkeys(self.sources)
            for line in (
                self.texts[data].describe()
                if data in self.texts
                else [f"not on this machine, and not checked: {', '.join(absent_files(data))}"]
            )
        )
        return [
            f"config: {config.name}, {describe_size(config.model)}{members}",
            f"stages: {len(self.stages)}, {counted(self.num_steps, 'steps')} in all",
            *(
                f"workdir: {run.path} is writable; {at_step}{self._describe_later(run)}"
                for run in self.runs
            ),
            "mesh: " + ", ".join(f"{axis}={size}" for axis, size in self.axes.items()),
            f"model.compute_dtype: {config.model.compute_dtype}, here {dtype}",
            *(f"start_from: {start} has parameters of these shapes" for start in starts if start),
            *(f"data.tokenizer: {path} has {size} ids" for path, size in files.items()),
            *self.notes(),
            *sources,
            *dict.fromkeys(
                stage.config.evals.describe(stage.config.data.context_length)
                for stages in self.stages
                for stage in stages
            ),
            *self._describe_skipped(),
        ]

    def _describe_skipped(self) -> list[str]:
        """Return lines about tasks that the evaluation of the finished runs will skip."""
        run, (*_, last) = self.runs[0], self.stages
        _, tokenizer = next(iter(self.tokenizers.values()), ("", None))
        if tokenizer is None and run.is_started():
            tokenizer = run.tokenizer
        reasons = [
            reason for stage in last for reason in evals.find_unfit(stage.config, tokenizer, run)
        ]
        lines = [f"evaluation: will be skipped: {reason}" for reason in dict.fromkeys(reasons)]
        if tokenizer is None:
            lines.append("evaluation: whether tasks fit is known when there is a tokenizer")
        return lines


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Plan(Checked):
    """A complete plan.

    Attributes:
      data: rows of each stage.
      mesh: the mesh of all stages.
      targets: shapes, dtypes, and shardings of the training state of all members, in each stage:
        an optimizer that freezes parameters has another state.
      tokenizer: of the first stage.
      params: parameters to start from, on the mesh, stacked; None: fresh ones.
    """

    data: list[TrainingData]
    mesh: Mesh
    targets: list[State]
    tokenizer: Tokenizer
    params: Params | None

    def target_at(self, step: int) -> State:
        """Return the one of `targets` that a checkpoint of `step` holds."""
        return self.targets[self.stage_of(step).number]


def check_plan(members: Sequence[Member], elsewhere: tuple[int, int] | None = None) -> Checked:
    """Check everything that needs no arrays and no texts; write nothing.

    Args:
      members: those that train together (`training.programs.shared_part`); a run of the same
        config is continued.
      elsewhere: numbers of devices and processes of the machines that will train; None: those of
        this process.

    Raises:
      ValueError: for any error of the user.
    """
    members = [member._replace(config=member.run.pinned(member.config)) for member in members]
    runs, config = [member.run for member in members], members[0].config
    if elsewhere is None:
        evals.while_training(config)  # refuses lengths that do not fit the memory
    check_trackers(config.train.tracking)
    stages = list(zip(*(split(member.config) for member in members), strict=True))
    for member, *member_stages in zip(members, *stages, strict=True):
        run = member.run
        run.check_resumable(member.config)
        for stage in member_stages:
            if not run.is_started():
                stage.config.model.check_rotation()
        if distributed.is_primary_host():
            check_writable(run.path, "use another --workdir")
    if config.train.profile_steps and in_bucket(runs[0].path):
        raise ValueError(
            f"train.profile_steps writes files of a disk, and {runs[0].path} is in a bucket; leave "
            "it out, or use a --workdir of this machine"
        )
    for stage, *_ in stages:
        _check_stage(stage, stages[0][0], len(members), is_elsewhere=elsewhere is not None)
    configs = [stage.config for stage, *_ in stages]
    if elsewhere:
        axes = mesh_sizes(configs[0], len(members), *elsewhere)
    else:
        axes = dict(make_mesh(configs[0], len(members)).shape)
    check_stages(configs, axes, len(members))
    steps = common_steps(runs)
    for step in reversed(steps):  # the newest that can be read
        with contextlib.suppress(DamagedCheckpointError):
            for run in runs:
                check_config(run, step)
            break
    if steps and not all(run.is_finished for run in runs) and (run := find_pruned(runs, steps)):
        raise ValueError(
            f"{run.path} has parameters without an optimizer state and cannot be resumed; "
            f"train it further in another --workdir with start_from={run.path}"
        )
    tokenizers: Tokenizers = {}
    for member in members if config.start_from and not steps else ():
        parent, _ = find_matching_start(member)
        where = f"start_from={member.config.start_from}"
        tokenizers[where] = parent.tokenizer_path, parent.tokenizer
    sources = [runs[0].with_own_tokenizer(stage.config.data) for stage, *_ in stages]
    texts = {
        data: pipeline.check_data(data)
        for data in dict.fromkeys(sources)
        if not (elsewhere and absent_files(data))
    }
    for number, data in enumerate(sources):
        if data in texts and (tokenizer := texts[data].tokenizer):
            tokenizers[f"stage {number}"] = str(data.tokenizer), tokenizer
    _check_tokenizers(tokenizers, config.model.vocab_size)
    return Checked(
        members=members,
        stages=stages,
        sources=sources,
        axes=axes,
        steps=steps,
        tokenizers=tokenizers,
        texts=texts,
    )


def complete_plan(checked: Checked) -> Plan:
    """Read the parameters to start from, and open the rows, whose preparation may take hours.

    All processes must call this together.

    Args:
      checked: result of `check_plan` on the devices of this process.

    Raises:
      ValueError: for any error of the user; in all processes if in one of them.
    """
    config, members = checked.config, checked.members
    # A file system may show a checkpoint to one host before another.
    start_step = distributed.broadcast_from_primary(checked.start_step)
    mesh = make_mesh(config, len(members))
    targets = [abstract_state(stage.config, len(members), mesh) for stage, *_ in checked.stages]
    params = None
    if config.start_from and not start_step:
        params = starting_params(members, shardings_of(targets[0]).params)
    with distributed.refusing_together():
        opened = [pipeline.open_data(x, checked.texts[x].write()) for x in checked.sources]
        texts = [data.fingerprint for data in opened]
        held_out = [data.held_out_fingerprint for data in opened]
        for run in filter(RunDirectory.is_started, checked.runs):
            run.refuse_other_texts(run.held_out_fingerprints, held_out)
            run.refuse_other_texts(run.record.get("trained_on"), texts)
        notes = dict.fromkeys(checked.notes())
        for (stage, *_), data in zip(checked.stages, opened, strict=True):
            rows = data.open_rows("train")  # checks their shapes
            num_rows = (stage.end - stage.rows_from) * data.config.batch_size
            notes |= dict.fromkeys(rows.notes(num_rows))
            if stage.config.train.eval_every:
                data.open_rows("validation")
        tokenizers = {
            f"stage {number}": (data.tokenizer_path, Tokenizer(data.tokenizer_path))
            for number, data in enumerate(opened)
        }
        _check_tokenizers(checked.tokenizers | tokenizers, config.model.vocab_size)
    _, tokenizer = tokenizers["stage 0"]
    if notes and distributed.is_primary_host():
        print(*notes, sep="\n", file=sys.stderr)
    older = [step for step in checked.steps if step < start_step]
    steps = [*older, start_step] if start_step else []
    settings: dict[str, Any] = vars(checked) | {"steps": steps}
    return Plan(
        **settings, data=opened, mesh=mesh, targets=targets, tokenizer=tokenizer, params=params
    )


def _check_stage(stage: Stage, first: Stage, num_members: int, *, is_elsewhere: bool) -> None:
    """Raise ValueError for a mistake in a stage of members.

    Args:
      stage: of the first member.
      first: first stage of the run, whose parameters all stages share.
      num_members: number of members.
      is_elsewhere: whether other devices than those of this process will train.
    """
    shapes = abstract_params(first.config.model)
    if difference := shape_difference(abstract_params(stage.config.model), shapes):
        raise ValueError(
            f"stage {stage.number}: {difference} in stage 0; stages share one set of parameters"
        )
    paths = list(flatten(shapes))
    for name in stage.config.train.frozen:
        if not any(f".{name}." in f".{path}." for path in paths):
            raise ValueError(f"train.frozen: no parameter {name!r}; {nearest(name, paths)}")
    if is_elsewhere:
        return
    # At least the parameters and the optimizer's state must fit once over all devices: otherwise
    # the run would fail after minutes.
    needed, available = num_members * state_bytes(stage.config), device_memory()
    if available is not None and needed > available:
        raise ValueError(
            f"parameters and optimizer state take {needed / 2**30:,.1f} GiB, and all devices have "
            f"{available / 2**30:,.1f} GiB; make the model smaller, or use more devices"
        )


def _check_tokenizers(tokenizers: Tokenizers, num_ids: int) -> None:
    """Raise ValueError for ids without an embedding, and if two tokenizers differ."""
    if not tokenizers:
        return
    (first, (path, tokenizer)), *rest = tokenizers.items()
    vocab_size = tokenizer.vocab_size
    if vocab_size > num_ids:
        raise ValueError(
            f"the tokenizer has {vocab_size} ids but model.vocab_size={num_ids}; "
            f"use model.vocab_size={_padded(vocab_size)}"
        )
    for name, (_, other) in rest:
        if other != tokenizer:
            raise ValueError(
                f"{name} has another tokenizer than {first}; use data.tokenizer={path}"
            )


def _padded(vocab_size: int) -> int:
    return -(-vocab_size // 128) * 128
