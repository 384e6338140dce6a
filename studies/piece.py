"""A piece of work: members of one shape and one seed, trained through one doubling and measured.

What lies in the work directory of a study, for each run:

    CARD/MEMBER,seed=K/trunk-N/    constant learning rate up to step N, where a decay begins
    CARD/MEMBER,seed=K/whole-S/    the same run with its decay, S steps in all; measured, then gone

A trunk is gone once the next one has been made of it.
"""

import contextlib
import dataclasses
import functools
import math
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

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
from experiment.items import copy_checkpoint
from experiment.metrics import flops_per_token
from experiment.run import RunDirectory
from experiment.stages import split
from model import transformer
from settings.places import copy, in_bucket, move, remove
from studies import doublings
from studies.card import Card
from studies.doublings import Reached
from studies.rows import Answers, Counts, Row, run_name
from training import loop
from training.plan import make_plan

# FLOP/s of a core, for how often to save before anything was measured.
_CORE_FLOPS = 5e10
_SECONDS_BETWEEN_SAVES = 60


class Run(NamedTuple):
    """One member with one seed.

    Attributes:
      card: what it belongs to.
      member: its name.
      seed: of initialisation and data.
      levels: its config after each doubling.
    """

    card: Card
    member: str
    seed: int
    levels: tuple[ExperimentConfig, ...]

    @property
    def path(self) -> str:
        """Under the work directory of the study."""
        return f"{self.card.name}/{run_name(self.member, self.seed)}"

    def tokens(self, level: int) -> int:
        """It is trained on up to the end of a doubling."""
        stage = split(self.levels[level])[-1]
        data, steps = stage.config.data, stage.end - stage.start
        return stage.tokens_before + steps * data.batch_size * data.context_length


class Piece(NamedTuple):
    """Runs of one shape, data and seed, and the number of the doubling to come."""

    runs: tuple[Run, ...]
    level: int

    @property
    def name(self) -> str:
        """As the screen says it."""
        card, *_ = {run.card.name for run in self.runs}
        members = "+".join(run.member for run in self.runs)
        tokens = self.runs[0].tokens(self.level)
        return f"{card} {members} seed {self.runs[0].seed} to {tokens / 1e6:.3g}M tokens"


def runs_of(card: Card, seeds: Sequence[int]) -> list[Run]:
    """Every member with every seed; `seed` and `data.seed` alike.

    Raises:
      ValueError: if an override of a member is wrong.
    """
    found = []
    for seed in seeds:
        for member, config in card.configs().items():
            data = dataclasses.replace(config.data, seed=seed)
            seeded = dataclasses.replace(config, seed=seed, data=data)
            found.append(Run(card, member, seed, tuple(doublings.levels(card, seeded))))
    return found


def work(piece: Piece, workdir: Path, before: Sequence[Sequence[Row]]) -> list[Row] | None:
    """Trains and measures a piece; None if a signal stopped it. What was trained is kept.

    Args:
      piece: what to do.
      workdir: of the study.
      before: of each run, the rows of the doublings before.

    Returns:
      A row for each run, without what it cost.

    Raises:
      ValueError: for anything the user has to mend.
    """
    configs = [run.levels[piece.level] for run in piece.runs]
    whole = [_at(workdir / run.path, "whole", config) for run, config in _pairs(piece, configs)]
    if piece.runs[0].card.tokens is not None:
        trunks = [doublings.trunk(config) for config in configs]
        made = [_at(workdir / run.path, "trunk", config) for run, config in _pairs(piece, trunks)]
        for trunk, config in zip(made, trunks, strict=True):
            _grow(trunk, config)
        if not _train(trunks, made, evaluate=False):
            return None
        for trunk, target, config in zip(made, whole, configs, strict=True):
            fork(trunk, target, config)
    if not _train(configs, whole, evaluate=True):
        return None
    for directory in whole:
        if directory.diverged_at:
            raise ValueError(
                f"{directory.path} diverged at step {directory.diverged_at}: there is nothing to "
                "measure; give the member a lower train.learning_rate"
            )
    return [
        _row(run, piece.level, earlier, directory)
        for run, earlier, directory in zip(piece.runs, before, whole, strict=True)
    ]


def _pairs(
    piece: Piece, configs: Sequence[ExperimentConfig]
) -> Iterator[tuple[Run, ExperimentConfig]]:
    return zip(piece.runs, configs, strict=True)


def clean(run: Run, workdir: Path, row: Row) -> None:
    """Deletes what a finished row no longer needs: the decayed copy; at a run's end, all of it."""
    folder = workdir / run.path
    for path in [folder] if row.final else _called(r"whole-.*", folder):
        with contextlib.suppress(OSError):
            remove(path)


def _at(folder: Path, kind: str, config: ExperimentConfig) -> RunDirectory:
    return RunDirectory(folder / f"{kind}-{config.train.num_steps}")


def _grow(trunk: RunDirectory, config: ExperimentConfig) -> None:
    """Begins a trunk where the last one ended, if there is one; deletes those before."""
    found = _called(r"trunk-\d+", trunk.path.parent)
    trunks = {int(path.name.partition("-")[2]): path for path in found}
    shorter = [steps for steps in trunks if steps < config.train.num_steps]
    if shorter:
        fork(RunDirectory(trunks[max(shorter)]), trunk, config)
    for steps in shorter:
        remove(trunks[steps])


def _called(pattern: str, folder: Path) -> list[Path]:
    """What lies in a folder that need not exist, by a pattern of names."""
    found = folder.iterdir() if folder.is_dir() else ()
    return [path for path in found if re.fullmatch(pattern, path.name)]


def fork(source: RunDirectory, target: RunDirectory, config: ExperimentConfig) -> None:
    """A new run of `config` at `target` that has come as far as `source`, bit for bit.

    `config` must have trained alike so far: then going on with it ends as a run of it from scratch.
    A target that exists is left alone.
    """
    if (target.path / "config.json").exists():
        return
    with _beside(target.path) as folder:
        part = RunDirectory(folder)
        step = source.find_step()
        part.write_config(config, (), source.tokenizer_sha256)
        copy_checkpoint(source, step, part)
        for name in (source.tokenizer_path.name, source.metrics_path.name):
            if (source.path / name).exists():
                copy(source.path / name, part.path / name)
        move(part.path, target.path, last="config.json")


@contextlib.contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """A folder, not made yet, from which `settings.places.move` makes `target`."""
    if in_bucket(target):
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder) / target.name
        return
    part = target.with_name(target.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    yield part


def expected_seconds(run: Run, level: int) -> float:
    """What a doubling would cost a core of 50 GFLOP/s, measuring left out."""
    before = 0
    if level:
        before = doublings.constant_steps(run.levels[level - 1].train)
    config = run.levels[level]
    return (split(config)[-1].end - before) * _seconds_per_step(config)


def _seconds_per_step(config: ExperimentConfig) -> float:
    sizes = change(config, seed=0, data=dict(seed=0), train=dict(num_steps=1, warmup_steps=0))
    return _seconds_per_step_of(sizes)


@functools.cache
def _seconds_per_step_of(sizes: ExperimentConfig) -> float:
    tokens = sizes.data.batch_size * sizes.data.context_length
    return flops_per_token(sizes) * tokens / _CORE_FLOPS


def _train(
    configs: Sequence[ExperimentConfig], runs: Sequence[RunDirectory], *, evaluate: bool
) -> bool:
    """Whether it came to its end; the loss on held-out rows is taken there, if it is asked for."""
    config = configs[0]
    num_steps = config.train.num_steps
    kept = dict(
        save_every=min(
            config.train.save_every,
            max(1, round(_SECONDS_BETWEEN_SAVES / _seconds_per_step(config))),
        ),
        keep=1,
        log_every=max(1, num_steps // 100),
        eval_every=num_steps if evaluate else 0,
        eval_tasks=(),
    )
    configs = [change(config, train=kept) for config in configs]
    return loop.train(make_plan(configs, runs, open_data=_open_data))


# A look at the thousands of files of a source takes as long as some training.
_prepared = functools.cache(prepare)


def _open_data(config: DataConfig) -> TrainingData:
    return open_data(config, _prepared(config))


def _measure(run: Run, directory: RunDirectory) -> list[tuple[Answers, Rows]]:
    """All that the card measures of a finished run, with the answers' own rows."""
    params, step = restore_params(directory)
    config = directory.config_at(step)
    found = []
    for measurement in run.card.measurements:
        rest = transformer.without_heads(params, measurement.masked_heads)
        variants = (config.model.rotary,)
        loaded = runner.Loaded(directory.name, config, directory.tokenizer, rest, step, variants)
        options = runner.Options(
            tasks=measurement.tasks or None, lengths=measurement.lengths or None
        )
        group = runner.Group([loaded], options, lambda text: None)
        for asked in group.questions:
            (answered,) = group.ask(asked, lambda documents: None)
            kind = kinds.kind_of(answered)
            answers = Answers(
                measurement=measurement.name,
                task=asked.task.expression,
                length=asked.length,
                value=float(kind.value(answered)),
                counts=Counts.of(answered) if asked.task.kind == "retrieval" else None,
            )
            found.append((answers, answered))
    return found


def reached(answered: Rows) -> Reached:
    """What decides whether a run goes on."""
    (seed,) = effective_context.estimate(answered).seeds
    l50 = math.inf if seed.beyond else seed.l50
    return Reached(l50, seed.mean_accuracy, seed.ceiling)


def _row(run: Run, level: int, before: Sequence[Row], directory: RunDirectory) -> Row:
    """Of a finished run, measured now; what it cost is not known here."""
    measured = _measure(run, directory)
    decisive = [answered for answers, answered in measured if answers.counts is not None]
    now = reached(decisive[0]) if decisive else Reached(math.nan, math.nan, math.nan)
    earlier = [Reached(row.l50, row.mean_accuracy, row.ceiling) for row in before]
    last = directory.read_metrics()[-1]
    return Row(
        card=run.card.name,
        member=run.member,
        seed=run.seed,
        tokens=run.tokens(level),
        final=doublings.ended([*earlier, now], len(run.levels)),
        config=run.levels[level],
        answers=tuple(answers for answers, _ in measured),
        **now._asdict(),
        # A loss that is no number is null in metrics.jsonl.
        losses={name: last[name] for name in ("loss", "val_loss") if last[name] is not None},
        made_by=made_by(),
        core_seconds=0.0,
    )


def made_by() -> dict[str, Any]:
    """The code and the machine."""
    return {
        "commit": _commit(),
        "estimator": effective_context.ESTIMATOR,
        "jax": jax.__version__,
        "python": platform.python_version(),
        "device": jax.devices()[0].device_kind,
    }


@functools.cache
def _commit() -> str | None:
    """Of the code that runs, with a + where files differ from it; None outside of git."""
    root = Path(__file__).parent

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else ""

    # Rows of a study are written while it runs: they are no change of the code.
    changed = git("status", "--porcelain", "--untracked-files=no", "--", "*.py")
    commit = git("rev-parse", "--short=12", "HEAD")
    return commit + "+" * bool(changed) if commit else None
