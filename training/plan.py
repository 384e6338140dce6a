"""The plan of a run: everything is checked before anything is written or compiled."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, cast

import jax
from jax.sharding import AbstractMesh, Mesh

from data import pipeline
from data.config import DataConfig
from data.pipeline import TrainingData
from data.tokenizer import Tokenizer
from experiment import distributed
from experiment.checkpoint import shape_difference
from experiment.config import ExperimentConfig
from experiment.mesh import device_memory, make_mesh, mesh_sizes
from experiment.run import RunDirectory, common_steps
from experiment.stages import Stage, split
from experiment.tracking import check_trackers
from model.transformer import Params, abstract_params, describe_size
from training.start import find_matching_start, starting_params
from utils.files import check_writable
from utils.paths import as_path, copy, in_bucket


class Plan(NamedTuple):
    """A checked plan. Fields that members share are read from the first member.

    Attributes:
      configs: one per member; `start_from` includes the step.
      runs: one directory per member; an unfinished run is continued.
      overrides: overrides of each member, recorded in its config.json.
      stages: one tuple per stage, holding each member's `Stage`.
      data: rows of each stage.
      mesh: the mesh of all stages.
      start_step: step of the newest common checkpoint; 0 if there is none.
      params: parameters to start from, on the mesh, stacked; None: fresh ones.
    """

    configs: list[ExperimentConfig]
    runs: Sequence[RunDirectory]
    overrides: Sequence[Sequence[str]]
    stages: list[tuple[Stage, ...]]
    data: list[TrainingData]
    mesh: Mesh
    start_step: int
    params: Params | None


OpenData = Callable[[DataConfig], TrainingData]
Tokenizers = dict[str, tuple[Path, Tokenizer]]  # by a description of where it comes from


def make_plan(
    configs: Sequence[ExperimentConfig],
    runs: Sequence[RunDirectory],
    *,
    overrides: Sequence[Sequence[str]] = (),
    open_data: OpenData = pipeline.open_data,
) -> Plan:
    """Check all stages of a run before any compute is spent, and open its data.

    Args:
      configs: one per member, equal in each stage except for the rotary variant, the window, the
        learning rate, the seed (not the data's), and `start_from`.
      runs: one directory per member; a run of the same config is continued.
      overrides: overrides of each member, for its config.json; empty if there are none.
      open_data: returns the rows of a stage's data config; a caller with rows in memory passes a
        function that returns `data.pipeline.rows_in_memory`.

    Raises:
      ValueError: for any error of the user; in all processes if in one of them.
    """
    with distributed.refusing_together():
        plan = _check(configs, runs, overrides)
    # A file system may show a checkpoint to one host before another.
    plan = plan._replace(start_step=distributed.broadcast_from_primary(plan.start_step))
    with distributed.refusing_together():
        if open_data is pipeline.open_data:  # all stages: the last one's mistake must not wait
            for data in _stage_data(plan):
                pipeline.check_data(data)
        tokenizers = _early_tokenizers(plan)  # preparing rows may take hours
    if _starts_from_parents(plan):
        plan = plan._replace(params=starting_params(plan.configs, plan.mesh))
    with distributed.refusing_together():
        return plan._replace(data=_open_stages(plan, tokenizers, open_data))


def check_plan(
    configs: Sequence[ExperimentConfig],
    runs: Sequence[RunDirectory],
    *,
    overrides: Sequence[Sequence[str]] = (),
    num_devices: int | None = None,
) -> list[str]:
    """Check what `make_plan` checks before it reads arrays and prepares text; write nothing.

    Args:
      configs, runs, overrides: as in `make_plan`.
      num_devices: of the machine that will train; None: those of this process.

    Returns:
      Lines that say what was checked.

    Raises:
      ValueError: as `make_plan`; also if `data.path` holds no files.
    """
    plan = _check(configs, runs, overrides, num_devices)
    config, num_members = plan.configs[0], len(runs)
    members = f", {num_members} members in one program" if num_members > 1 else ""
    num_steps, num_stages = plan.stages[-1][0].end, len(plan.stages)
    at_step = "no steps yet"
    if plan.start_step:
        at_step = f"step {plan.start_step} of {num_steps} is there"
    lines = [
        f"config: {config.name}, {describe_size(config.model)}{members}",
        f"stages: {num_stages}, {num_steps} steps in all",
        *(f"workdir: {run.path} is writable; {at_step}" for run in runs),
        "mesh: " + ", ".join(f"{axis}={size}" for axis, size in plan.mesh.shape.items()),
    ]
    if num_devices is None:
        lines.append("memory: all devices together hold the parameters and AdamW's moments")
    tokenizers = _early_tokenizers(plan)
    if _starts_from_parents(plan):
        starts = dict.fromkeys(str(config.start_from) for config in plan.configs)
        lines += [f"start_from: {start} has parameters of these shapes" for start in starts]
    files = {path: tokenizer.vocab_size for path, tokenizer in tokenizers.values()}
    lines += [f"data.tokenizer: {path} has {size} ids" for path, size in files.items()]
    for data in dict.fromkeys(_stage_data(plan)):
        pipeline.check_data(data)
        lines.append(f"data.source={data.source}: {pipeline.describe_source(data)}")
    return [*lines, "not checked: documents, free disk space, the memory of activations"]


def _check(
    configs: Sequence[ExperimentConfig],
    runs: Sequence[RunDirectory],
    overrides: Sequence[Sequence[str]],
    num_devices: int | None = None,
) -> Plan:
    overrides = overrides or [()] * len(runs)
    check_trackers(configs[0].train.tracking)
    configs = [run.pinned(config) for run, config in zip(runs, configs, strict=True)]
    for run, config in zip(runs, configs, strict=True):
        run.check_resumable(config)
    if distributed.is_primary_host():
        for run in runs:
            check_writable(run.path, "use another --workdir")
    if configs[0].train.profile_steps and in_bucket(runs[0].path):
        raise ValueError(
            f"train.profile_steps writes files of a disk, and {runs[0].path} is in a bucket; leave "
            "it out, or use a --workdir of this machine"
        )
    stages = list(zip(*map(split, configs), strict=True))
    shapes = abstract_params(configs[0].model)
    if num_devices is None:
        _check_memory(shapes, len(configs))
    for stage, *other_stages in stages:
        members = [other.config for other in (stage, *other_stages)]
        if len({(member.data, member.model.architecture) for member in members}) > 1:
            raise ValueError(
                f"stage {stage.number}: members that train together share their rows and one "
                "program, and these differ in data, or in more of their models than rotary and "
                "window; train them apart"
            )
        _make_mesh(stage.config, len(configs), num_devices)  # refuses one that does not fit
        if difference := shape_difference(abstract_params(stage.config.model), shapes):
            raise ValueError(
                f"stage {stage.number}: {difference} in stage 0; stages share one set of parameters"
            )
    start_step = max(common_steps(runs), default=0)
    mesh = _make_mesh(configs[0], len(configs), num_devices)
    return Plan(configs, runs, overrides, stages, [], mesh, start_step, None)


def _make_mesh(config: ExperimentConfig, num_members: int, num_devices: int | None) -> Mesh:
    """Return the mesh of this process's devices, or one of `num_devices` that has a shape only."""
    if num_devices is None:
        return make_mesh(config, num_members)
    sizes = mesh_sizes(config, num_members, num_devices)
    return cast(Mesh, AbstractMesh(tuple(sizes.values()), tuple(sizes)))


def _stage_data(plan: Plan) -> list[DataConfig]:
    """Return the data config of each stage, with a tokenizer that exists."""
    return [plan.runs[0].with_own_tokenizer(stage.config.data) for stage, *_ in plan.stages]


def _starts_from_parents(plan: Plan) -> bool:
    return plan.start_step == 0 and bool(plan.configs[0].start_from)


def _early_tokenizers(plan: Plan) -> Tokenizers:
    """Return the tokenizers that exist before rows are read: of parent runs and of named files."""
    tokenizers = {}
    for config in plan.configs if _starts_from_parents(plan) else ():
        parent, _ = find_matching_start(config)
        tokenizers[f"start_from={config.start_from}"] = parent.tokenizer_path, parent.tokenizer
    for number, data in enumerate(_stage_data(plan)):
        if path := data.tokenizer:
            tokenizers[f"stage {number}"] = as_path(path), Tokenizer(path)
    _check_tokenizers(tokenizers, plan.configs[0].model.vocab_size)
    return tokenizers


def _open_stages(plan: Plan, tokenizers: Tokenizers, open_data: OpenData) -> list[TrainingData]:
    """Open the data of each stage; raise ValueError if their tokenizers differ."""
    opened = []
    for (stage, *_), config in zip(plan.stages, _stage_data(plan), strict=True):
        data = open_data(config)
        # Opening the rows checks their shapes.
        data.open_rows("train")
        if stage.config.train.eval_every:
            data.open_rows("validation")
        if path := data.tokenizer_path:
            tokenizers = tokenizers | {f"stage {stage.number}": (path, Tokenizer(path))}
        opened.append(data)
    _check_tokenizers(tokenizers, plan.configs[0].model.vocab_size)
    return opened


def _check_memory(params: Params, num_members: int) -> None:
    """Raise ValueError if a model cannot fit: otherwise it would fail after minutes."""
    # At least the parameters and AdamW's two moments must fit once over all devices.
    member_bytes = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(params))
    needed, available = 3 * num_members * member_bytes, device_memory()
    if available is not None and needed > available:
        raise ValueError(
            f"parameters and AdamW's moments take {needed / 2**30:,.1f} GiB, and all devices have "
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
            f"use model.vocab_size={-(-vocab_size // 128) * 128}"
        )
    for name, (_, other) in rest:
        if other != tokenizer:
            raise ValueError(
                f"{name} has another tokenizer than {first}; use data.tokenizer={path}"
            )


def write_records(plan: Plan, command: str) -> None:
    """Create the run directories with config and tokenizer; existing files stay.

    Args:
      plan: the checked plan.
      command: the command line, recorded in each run; empty if there is none.
    """
    if distributed.is_primary_host():
        for run, config, member_overrides in zip(
            plan.runs, plan.configs, plan.overrides, strict=True
        ):
            tokenizer_path = plan.data[0].tokenizer_path
            if not run.is_started():
                sha256 = Tokenizer(tokenizer_path).fingerprint if tokenizer_path else None
                run.write_config(config, member_overrides, sha256)
            if command:
                run.record_command(command)
            if tokenizer_path:
                _copy(tokenizer_path, run.path / tokenizer_path.name)
            # With several texts, none of them is the held-out text of the run.
            held_out, *other_folders = {data.held_out for data in plan.data}
            if held_out and not other_folders:
                _copy(held_out, run.held_out_path)
    # All hosts write checkpoints into directories that only one of them creates.
    distributed.barrier("run directories are made")


def _copy(source: Path, target: Path) -> None:
    """Copy a file or a store, unless it is there: the index of a store is copied last."""
    last = target / "store.json" if source.is_dir() else target
    if not last.exists():
        copy(source, target)
