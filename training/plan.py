"""The plan of a run: everything is checked before anything is written or compiled."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh, Mesh

import evals
from data import pipeline
from data.config import DataConfig
from data.pipeline import TrainingData
from data.tokenizer import Tokenizer
from experiment import checkpoint, distributed
from experiment.checkpoint import naming_intact_checkpoint, restore_params, shape_difference
from experiment.config import ExperimentConfig, TrainConfig, to_dict
from experiment.mesh import device_memory, make_mesh, mesh_sizes, put
from experiment.metrics import check_trackers
from experiment.run import RunDirectory, common_steps, find_start, flatten
from experiment.stages import Stage, split
from model import sharding
from model.config import ModelConfig
from model.rotary import unique_variants
from model.transformer import Params, abstract_params, describe_size
from training import optimizer
from utils.files import check_writable
from utils.messages import nearest
from utils.paths import as_path, in_bucket


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
    num_processes: int = 1,
) -> list[str]:
    """Check what `make_plan` checks before it reads arrays and prepares text; write nothing.

    Args:
      configs, runs, overrides: as in `make_plan`.
      num_devices: of the machines that will train; None: those of this process.
      num_processes: that share `num_devices`.

    Returns:
      Lines that say what was checked.

    Raises:
      ValueError: as `make_plan`; also if `data.path` holds no files.
    """
    plan = _check(configs, runs, overrides, num_devices, num_processes)
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
        lines.append("memory: all devices together hold the parameters and the optimizer state")
    tokenizers = _early_tokenizers(plan)
    if _starts_from_parents(plan):
        starts = dict.fromkeys(str(config.start_from) for config in plan.configs)
        lines += [f"start_from: {start} has parameters of these shapes" for start in starts]
    files = {path: tokenizer.vocab_size for path, tokenizer in tokenizers.values()}
    lines += [f"data.tokenizer: {path} has {size} ids" for path, size in files.items()]
    for data in dict.fromkeys(_stage_data(plan)):
        pipeline.check_data(data)
        lines += [f"data.source={data.source}: {line}" for line in pipeline.describe_source(data)]
    return [*lines, "not checked: documents, free disk space, the memory of activations"]


def _check(
    configs: Sequence[ExperimentConfig],
    runs: Sequence[RunDirectory],
    overrides: Sequence[Sequence[str]],
    num_devices: int | None = None,
    num_processes: int = 1,
) -> Plan:
    overrides = overrides or [()] * len(runs)
    evals.while_training(configs[0])  # refuses unknown tasks
    check_trackers(configs[0].train.tracking)
    configs = [run.pinned(config) for run, config in zip(runs, configs, strict=True)]
    for run, config in zip(runs, configs, strict=True):
        run.check_resumable(config)
        if not run.is_started():
            _check_fractions(config.model)
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
    _check_frozen(shapes, stages)
    if num_devices is None:
        _check_memory(shapes, [stage.config.train for stage, *_ in stages], len(configs))
    for stage, *other_stages in stages:
        members = [other.config for other in (stage, *other_stages)]
        if len({(member.data, member.model.architecture) for member in members}) > 1:
            raise ValueError(
                f"stage {stage.number}: members that train together share their rows and one "
                "program, and these differ in data, or in more of their models than rotary and "
                "window; train them apart"
            )
        # Refuses one that does not fit.
        _make_mesh(stage.config, len(configs), num_devices, num_processes)
        if difference := shape_difference(abstract_params(stage.config.model), shapes):
            raise ValueError(
                f"stage {stage.number}: {difference} in stage 0; stages share one set of parameters"
            )
    start_step = max(common_steps(runs), default=0)
    mesh = _make_mesh(configs[0], len(configs), num_devices, num_processes)
    return Plan(configs, runs, overrides, stages, [], mesh, start_step, None)


def _check_fractions(model: ModelConfig) -> None:
    """Raise ValueError for a share of a head's features that is no number of pairs."""
    features = model.rope_head_dim
    for variant in unique_variants(model.rotary):
        wanted, rotated = variant.rotary_fraction * features, variant.rotary_dim(features)
        if abs(wanted - rotated) > 1e-3 * features:
            raise ValueError(
                f"model.rotary.rotary_fraction={variant.rotary_fraction} of {features} features is "
                f"{wanted:g}, and they rotate in pairs; use {rotated / features:g} ({rotated}) or "
                f"{(rotated + 2) / features:g} ({rotated + 2})"
            )


def _check_frozen(shapes: Params, stages: Sequence[tuple[Stage, ...]]) -> None:
    """Raise ValueError if `train.frozen` names no parameter."""
    paths = list(flatten(shapes))
    for stage, *_ in stages:
        for name in stage.config.train.frozen:
            if not any(f".{name}." in f".{path}." for path in paths):
                raise ValueError(f"train.frozen: no parameter {name!r}; {nearest(name, paths)}")


def _make_mesh(
    config: ExperimentConfig, num_members: int, num_devices: int | None, num_processes: int
) -> Mesh:
    """Return the mesh of this process's devices, or one of `num_devices` that has a shape only."""
    if num_devices is None:
        return make_mesh(config, num_members)
    sizes = mesh_sizes(config, num_members, num_devices, num_processes)
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


def _check_memory(params: Params, stages: Sequence[TrainConfig], num_members: int) -> None:
    """Raise ValueError if a model cannot fit: otherwise it would fail after minutes."""
    # At least the parameters and the optimizer's state must fit once over all devices.
    states = [jax.eval_shape(optimizer.make_optimizer(train).init, params) for train in stages]
    member_bytes = max(
        sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves((params, state)))
        for state in states
    )
    needed, available = num_members * member_bytes, device_memory()
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
            f"use model.vocab_size={-(-vocab_size // 128) * 128}"
        )
    for name, (_, other) in rest:
        if other != tokenizer:
            raise ValueError(
                f"{name} has another tokenizer than {first}; use data.tokenizer={path}"
            )


def starting_params(configs: Sequence[ExperimentConfig], mesh: Mesh) -> Params:
    """Return the parameters of the runs that `start_from` names, float32, stacked over members.

    For a single run, each device reads only its own shard, in the saved dtype, because one host may
    not have memory for all parameters. All processes must call this together.

    Raises:
      ValueError: in all processes, if there is no such checkpoint, it is damaged, or its model
        has other shapes.
    """
    with distributed.refusing_together():
        parents = [find_matching_start(config) for config in configs]
    where = sharding.parameter_shardings(configs[0].model, mesh, members=len(configs) > 1)
    if len(configs) == 1:
        return _restore_sharded(*parents[0], where)
    # Members are small: the host stacks them.
    with distributed.refusing_together():
        members_params = [restore_params(*parent)[0] for parent in parents]
    float32_params = [_in_float32(params, np.asarray) for params in members_params]
    return put(jax.tree.map(lambda *members: np.stack(members), *float32_params), where)


def find_matching_start(config: ExperimentConfig) -> tuple[RunDirectory, int]:
    """Return the run and the step that `config.start_from` names.

    Raises:
      ValueError: if there is no such checkpoint, or its parameters have other shapes.
    """
    parent, step = find_start(str(config.start_from))
    theirs, ours = abstract_params(parent.config.model), abstract_params(config.model)
    if difference := shape_difference(theirs, ours):
        theirs, ours = flatten(to_dict(parent.config.model)), flatten(to_dict(config.model))
        sizes = " ".join(
            f"model.{name}={str(value).lower()}"
            for name, value in theirs.items()
            if isinstance(value, int) and value != ours.get(name)
        )
        raise ValueError(
            f"start_from={config.start_from}: its {difference} in this config's model; "
            f"set {sizes or 'the sizes that it was trained with'}"
        )
    return parent, step


def _restore_sharded(run: RunDirectory, step: int, where: Params) -> Params:
    with distributed.refusing_together(), naming_intact_checkpoint(run, step):
        target = jax.tree.map(
            lambda x, sharding_: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding_),
            checkpoint.stored_params(run, step),
            where,
        )
        restored = checkpoint.restore(run, step, params=target)
    # All processes verify together, so all of them must have read first.
    with distributed.refusing_together(), naming_intact_checkpoint(run, step):
        checkpoint.verify(run, step, restored)
    return _in_float32(restored.arrays.pop("params"), jnp.asarray)


def _in_float32(params: Params, array: Callable) -> Params:
    """Convert the parameters to float32, one array at a time to bound the peak memory."""
    leaves, tree = jax.tree.flatten(params)
    del params
    for i in range(len(leaves)):
        leaves[i] = array(leaves[i], np.float32)
    return jax.tree.unflatten(tree, leaves)
