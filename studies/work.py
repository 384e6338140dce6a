"""Train and measure the runs of a study.

The work directory of a study holds, for each run:

    CARD/MEMBER,seed=K/stable-N/     constant learning rate up to step N, where a decay starts
    CARD/MEMBER,seed=K/decayed-S/    the same run with its decay, S steps; deleted once measured

A stable run is deleted once the next one has been started from it.
"""

import contextlib
import dataclasses
import functools
import itertools
import math
import platform
import re
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from configs.changes import change
from data.config import DataConfig
from data.pipeline import TrainingData, open_data
from data.prepare import prepare
from evals import kinds, runner
from evals.estimate import effective_context
from evals.rows import Rows
from experiment.checkpoint import restore_params
from experiment.config import ExperimentConfig
from experiment.inherit import inherit
from experiment.items import copy_checkpoint
from experiment.run import RunDirectory
from model import transformer
from model.positions import record_learned
from studies import budgets, rows
from studies.budgets import Outcome
from studies.jobs import Progress, Run, WorkItem
from studies.rows import Answers, Counts, Row
from training import loop
from training.plan import make_plan
from utils.git import current_commit
from utils.paths import copy, in_bucket, move, remove

# Compiled programs stay in memory for this many budgets, about 20 MB each.
_BUDGETS_PER_CACHE = 10
_budget_numbers = itertools.count(1)


def run_next_budget(item: WorkItem, progress: Progress) -> bool:
    """Train, measure and record the next budget of an item; return False if a signal stopped it.

    What was trained is kept, so that another call continues there.

    Raises:
      ValueError: for anything that the user has to change.
    """
    job, unfinished = progress.job, [run for run in item.runs if not progress.is_done(run)]
    level = min(len(progress.rows_of(run)) for run in unfinished)
    runs = [run for run in unfinished if len(progress.rows_of(run)) == level]
    start = time.process_time()  # of all threads
    try:
        earlier = [progress.rows_of(run) for run in runs]
        new_rows = train_budget(runs, level, job.workdir, earlier)
    finally:
        path = job.workdir / runs[0].path / f"seconds-{runs[0].tokens(level)}"
        seconds = _add_seconds(path, time.process_time() - start)
    if new_rows is None:
        return False
    for run, row in zip(runs, new_rows, strict=True):
        rows.write(job.rows, dataclasses.replace(row, core_seconds=round(seconds / len(runs), 1)))
        folder = job.workdir / run.path
        for path in [folder] if row.final else _find(r"decayed-.*", folder):
            with contextlib.suppress(OSError):
                remove(path)
    if next(_budget_numbers) % _BUDGETS_PER_CACHE == 0:
        jax.clear_caches()
    return True


def _add_seconds(path: Path, seconds: float) -> float:
    """Add core-seconds to the sum in a file, which an interrupted run has left; return the sum."""
    total = seconds + (float(path.read_text()) if path.exists() else 0.0)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{total:.1f}")
    return total


def train_budget(
    runs: Sequence[Run], level: int, workdir: Path, earlier: Sequence[Sequence[Row]]
) -> list[Row] | None:
    """Train runs of one shape to budget `level` and measure them; None if a signal stopped it.

    Args:
      runs: of one card and seed.
      level: number of the budget.
      workdir: work directory of the study.
      earlier: each run's rows of smaller budgets.

    Returns:
      A row for each run, with `core_seconds` 0.

    Raises:
      ValueError: for anything that the user has to change.
    """
    configs = [run.budgets[level] for run in runs]
    folders = [workdir / run.path for run in runs]
    decayed = [RunDirectory(f / f"decayed-{configs[0].train.num_steps}") for f in folders]
    configs = [
        _inherit(run, config, directory)
        for run, config, directory in zip(runs, configs, decayed, strict=True)
    ]
    if runs[0].card.tokens is not None:
        stable_configs = [budgets.make_stable(config) for config in configs]
        num_steps = stable_configs[0].train.num_steps
        stable = [RunDirectory(folder / f"stable-{num_steps}") for folder in folders]
        for directory, config in zip(stable, stable_configs, strict=True):
            _continue_stable(directory, config)
        if not _train(stable_configs, stable, evaluate=False):
            return None
        for source, target, config in zip(stable, decayed, configs, strict=True):
            fork(source, target, config)
    if not _train(configs, decayed, evaluate=True):
        return None
    for directory in decayed:
        if directory.diverged_at:
            raise ValueError(
                f"{directory.path} diverged at step {directory.diverged_at} and cannot be "
                "measured; give the member a lower train.learning_rate"
            )
    return [
        _make_row(run, level, directory, run_rows)
        for run, directory, run_rows in zip(runs, decayed, earlier, strict=True)
    ]


def _inherit(run: Run, config: ExperimentConfig, directory: RunDirectory) -> ExperimentConfig:
    """Return `config` with the model and the tokenizer of the run that its member starts from."""
    (member,) = (member for member in run.card.members if member.name == run.member)
    if not any(override.startswith("start_from=") for override in member.overrides):
        return config
    fields = ("start_from=", "model.", "data.tokenizer=")
    overrides = [override for override in member.overrides if override.startswith(fields)]
    return inherit(config, overrides, directory)


def _continue_stable(target: RunDirectory, config: ExperimentConfig) -> None:
    """Start a stable run from the longest shorter one, if there is one; delete the shorter ones."""
    paths = _find(r"stable-\d+", target.path.parent)
    shorter = {int(path.name.partition("-")[2]): path for path in paths}
    shorter = {steps: path for steps, path in shorter.items() if steps < config.train.num_steps}
    if shorter:
        fork(RunDirectory(shorter[max(shorter)]), target, config)
    for path in shorter.values():
        remove(path)


def _find(pattern: str, folder: Path) -> list[Path]:
    """Return the paths in a folder whose names match; the folder need not exist."""
    paths = folder.iterdir() if folder.is_dir() else ()
    return [path for path in paths if re.fullmatch(pattern, path.name)]


def fork(source: RunDirectory, target: RunDirectory, config: ExperimentConfig) -> None:
    """Make a run of `config` at `target` that has the state of `source`, bit for bit.

    `config` must have trained like `source` so far; then the run ends like a run from scratch.
    A target that exists stays as it is.
    """
    if (target.path / "config.json").exists():
        return
    # A folder of a disk is renamed, one in a bucket is copied: `utils.paths.move`.
    parent = None if in_bucket(target.path) else target.path.parent
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        part = RunDirectory(Path(folder) / target.path.name)
        step = source.find_step()
        part.write_config(config, (), source.tokenizer_sha256)
        copy_checkpoint(source, step, part)
        for name in (source.tokenizer_path.name, source.metrics_path.name):
            if (source.path / name).exists():
                copy(source.path / name, part.path / name)
        move(part.path, target.path, last="config.json")


def _train(
    configs: Sequence[ExperimentConfig], runs: Sequence[RunDirectory], *, evaluate: bool
) -> bool:
    """Train to the end, or to a signal; `evaluate`: compute the validation loss at the end."""
    num_steps = configs[0].train.num_steps
    changes = dict(
        keep=1,
        log_every=max(1, num_steps // 100),
        eval_every=num_steps if evaluate else 0,
        eval_tasks=(),
    )
    configs = [change(config, train=changes) for config in configs]
    return loop.train(make_plan(configs, runs, open_data=_open_data))


# Checking the thousands of files of a source takes as long as some training.
_prepare_once = functools.cache(prepare)


def _open_data(config: DataConfig) -> TrainingData:
    return open_data(config, _prepare_once(config))


def _measure(run: Run, directory: RunDirectory) -> list[tuple[Answers, Rows]]:
    """Make all measurements of a card on a finished run; return them with their result rows."""
    params, step = restore_params(directory)
    config = directory.config_at(step)
    results = []
    for measurement in run.card.measurements:
        loaded = runner.Loaded(
            directory.name,
            config,
            directory.tokenizer,
            transformer.without_heads(params, measurement.masked_heads),
            step,
            (config.model.rotary,),
        )
        options = runner.Options(
            tasks=measurement.tasks or None, lengths=measurement.lengths or None
        )
        for questions, (task_rows,) in runner.ask([loaded], options):
            is_retrieval = questions.task.kind == "retrieval"
            answers = Answers(
                measurement=measurement.name,
                task=questions.task.expression,
                length=questions.length,
                value=float(kinds.kind_of(task_rows).value(task_rows)),
                counts=Counts.from_rows(task_rows) if is_retrieval else None,
            )
            results.append((answers, task_rows))
    return results


def _outcome(task_rows: Rows) -> Outcome:
    (seed,) = effective_context.estimate(task_rows).seeds
    return Outcome(math.inf if seed.beyond else seed.l50, seed.mean_accuracy, seed.ceiling)


def _make_row(run: Run, level: int, directory: RunDirectory, earlier: Sequence[Row]) -> Row:
    """Measure a finished run and make its row; the first retrieval task decides its outcome."""
    results = _measure(run, directory)
    retrieval = [task_rows for answers, task_rows in results if answers.counts is not None]
    outcome = _outcome(retrieval[0]) if retrieval else Outcome(math.nan, math.nan, math.nan)
    outcomes = [Outcome(row.l50, row.mean_accuracy, row.ceiling) for row in earlier]
    metrics = directory.read_metrics()[-1]
    return Row(
        card=run.card.name,
        member=run.member,
        seed=run.seed,
        tokens=run.tokens(level),
        final=budgets.final_status([*outcomes, outcome], len(run.budgets)),
        config=run.budgets[level],
        answers=tuple(answers for answers, _ in results),
        **outcome._asdict(),
        # A loss that is not a number is null in metrics.jsonl.
        losses={name: metrics[name] for name in ("loss", "val_loss") if metrics[name] is not None},
        made_by=_provenance(),
        core_seconds=0.0,
        inv_freq=_learned_frequencies(directory),
    )


def _learned_frequencies(directory: RunDirectory) -> tuple:
    """Return the field `inv_freq` of the row of a finished run."""
    params, step = restore_params(directory)
    config = directory.config_at(step).model
    if not config.learned_frequencies:
        return ()
    recorded, _ = record_learned(config, params)
    inv_freq_LKR = recorded.position_table(2).inv_freq
    return tuple(tuple(tuple(head) for head in layer) for layer in inv_freq_LKR.round(6).tolist())


def _provenance() -> dict[str, Any]:
    """Versions of the code and the machine."""
    return {
        "commit": current_commit(),
        "estimator": effective_context.ESTIMATOR,
        "jax": jax.__version__,
        "python": platform.python_version(),
        "device": jax.devices()[0].device_kind,
    }
