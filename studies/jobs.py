"""The runs of a study and their progress, which the row files alone decide."""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from configs.changes import change
from evals.estimate.effective_context import ESTIMATOR
from experiment.config import ExperimentConfig
from experiment.stages import split
from studies import budgets, folder, load_cards, rows
from studies.card import Card
from studies.rows import Row
from utils.messages import nearest
from utils.paths import in_bucket

_CORE_FLOPS = 5e10  # FLOP/s of a core, an estimate for when nothing is measured yet


class Job(NamedTuple):
    """The cards and seeds of a study that one command runs, and the folders it uses.

    Attributes:
      study: name of a folder of `studies/`, or the path of another folder.
      cards: names, in the order in which they run.
      seeds: seeds of each member. All cards run with the first seed before the second.
      workdir: folder of the runs while they train, on a disk or in a bucket.
      rows: folder of the finished rows, on a disk or in a bucket.
    """

    study: str
    cards: tuple[str, ...]
    seeds: tuple[int, ...]
    workdir: Path
    rows: Path

    @property
    def local_dir(self) -> Path:
        """Folder of the lock and the log, on a disk of this machine."""
        if not in_bucket(self.workdir):
            return self.workdir
        return Path("runs", *self.workdir.parts[1:])


class Run(NamedTuple):
    """One member with one seed.

    Attributes:
      card: the member's card.
      member: name of the member.
      seed: seed of the initialization and of the data.
      budgets: config of each budget of tokens, ascending.
    """

    card: Card
    member: str
    seed: int
    budgets: tuple[ExperimentConfig, ...]

    @property
    def path(self) -> str:
        """Folder of the run in the study's work directory."""
        return f"{self.card.name}/{rows.run_name(self.member, self.seed)}"

    def tokens(self, level: int) -> int:
        """Return the number of tokens trained on at the end of budget `level`."""
        return budgets.count_tokens(self.budgets[level])

    def flops(self, level: int) -> float:
        """Return the FLOPs of training from budget `level - 1` to budget `level`."""
        start = budgets.stable_steps(self.budgets[level - 1].train) if level else 0
        config = self.budgets[level]
        tokens_per_step = config.data.batch_size * config.data.context_length
        return (split(config)[-1].end - start) * tokens_per_step * _flops_per_token(config)

    def row_name(self, level: int) -> str:
        """Return the name of the row file of budget `level`."""
        return rows.file_name(self.card.name, self.member, self.seed, self.tokens(level))


class WorkItem(NamedTuple):
    """Runs of one card, shape and seed that train together, through all of their budgets."""

    runs: tuple[Run, ...]

    def __str__(self) -> str:
        return "+".join(run.path for run in self.runs)


def _flops_per_token(config: ExperimentConfig) -> float:
    return _flops_of_shape(
        change(config, seed=0, data=dict(seed=0), train=dict(num_steps=1, warmup_steps=0))
    )


@functools.cache
def _flops_of_shape(config: ExperimentConfig) -> float:
    from experiment.metrics import flops_per_token  # late: wrong names need no JAX

    return flops_per_token(config)


def parse_seeds(text: str) -> list[int]:
    """Parse the seeds of a command line.

    Raises:
      ValueError: if they are not whole numbers between commas.
    """
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise ValueError(f"--seeds {text} must be whole numbers, like 0,1,2") from None


def make_job(
    study: str,
    only: Sequence[str] = (),
    seeds: Sequence[int] = (0,),
    workdir: Path | None = None,
    rows_folder: Path | None = None,
) -> Job:
    """Make the job of a command line.

    Args:
      study: name or path of the study.
      only: names of some cards; empty: all cards.
      seeds: seeds of each member.
      workdir: None: `runs/studies/STUDY`.
      rows_folder: None: `rows` in the study's folder.

    Raises:
      ValueError: for an unknown study or card, with the nearest name.
    """
    cards = load_cards(study)
    for name in only:
        if name not in cards:
            raise ValueError(f"study {study} has no card {name!r}; {nearest(name, cards)}")
    workdir = Path("runs/studies") / study if workdir is None else workdir
    rows_folder = folder(study) / "rows" if rows_folder is None else rows_folder
    return Job(study, tuple(only or cards), tuple(dict.fromkeys(seeds)), workdir, rows_folder)


def card_runs(card: Card, seed: int) -> list[Run]:
    """Make the run of every member of a card; `seed` and `data.seed` are equal.

    Raises:
      ValueError: if an override of a member is wrong.
    """
    runs = []
    for member, config in card.configs().items():
        data = dataclasses.replace(config.data, seed=seed)
        config = dataclasses.replace(config, seed=seed, data=data)
        runs.append(Run(card, member, seed, tuple(budgets.make_budgets(card, config))))
    return runs


def list_runs(job: Job) -> list[Run]:
    """List the runs of a job, seed by seed and card by card."""
    cards = load_cards(job.study)
    return [run for seed in job.seeds for name in job.cards for run in card_runs(cards[name], seed)]


def list_items(job: Job, *, apart: bool) -> list[WorkItem]:
    """List the work items of a job, finished or not; an item has the same number in every call.

    Args:
      job: the job.
      apart: make an item of every run. Otherwise an item holds all runs of one card, shape and
        seed, which a GPU or a TPU trains in the time of one.
    """
    from training.sweep import shared_part  # late: wrong names need no JAX

    groups: dict[Any, list[Run]] = {}
    for run in list_runs(job):
        shape = run.card.name, run.seed, shared_part(run.budgets[0])
        groups.setdefault(run.path if apart else shape, []).append(run)
    return [WorkItem(tuple(runs)) for runs in groups.values()]


class Progress:
    """The runs of a job and their finished rows.

    Attributes:
      job: the job.
      runs: all of its runs.
    """

    def __init__(self, job: Job):
        """Read no rows yet: `rows_of` and `check_rows` do."""
        self.job = job
        self.runs = list_runs(job)
        self._rows: dict[str, Row] = {}

    def check_rows(self) -> "Progress":
        """Read all rows of the job's cards, with any seed; return this object.

        Raises:
          ValueError: if a row is damaged, or does not match its card as the card is now.
        """
        cards = load_cards(self.job.study)
        for card in (cards[name] for name in self.job.cards):
            card_rows = rows.read_all(self.job.rows / card.name)
            configs = {
                run.row_name(level): config
                for seed in sorted({row.seed for row in card_rows})
                for run in card_runs(card, seed)
                for level, config in enumerate(run.budgets)
            }
            for row in card_rows:
                if row.name not in configs:
                    raise ValueError(
                        f"{row.name} belongs to no run of card {card.name} as it is now; delete "
                        "that row, or restore the card's members and budget"
                    )
                rows.check(row, card.name, configs[row.name], ESTIMATOR)
                self._rows[row.name] = row
        return self

    def rows_of(self, run: Run) -> list[Row]:
        """Return the finished rows of a run, up to the first missing budget."""
        finished = []
        for level in range(len(run.budgets)):
            name = run.row_name(level)
            path = self.job.rows / name
            if name not in self._rows and path.exists():
                self._rows[name] = rows.read(path)
            if name not in self._rows:
                break
            finished.append(self._rows[name])
            if finished[-1].final:
                break
        return finished

    def is_done(self, item: WorkItem | Run) -> bool:
        """Return whether all runs of an item, or one run, need no more training."""
        finished = map(self.rows_of, item.runs if isinstance(item, WorkItem) else [item])
        return all(run_rows and run_rows[-1].final for run_rows in finished)

    def describe(self) -> str:
        """Return how many runs are done, and an estimate of the remaining core-hours."""
        num_done = sum(map(self.is_done, self.runs))
        text = f"{num_done} of {len(self.runs)} runs done"
        hours = self.seconds_left() / 3600
        return f"{text}, about {hours:.1f} core-hours left" if hours else text

    def describe_cards(self) -> str:
        """Return `describe`, and the same numbers of each card."""
        lines = [self.describe()]
        for name in self.job.cards:
            runs = [run for run in self.runs if run.card.name == name]
            num_done = sum(map(self.is_done, runs))
            num_begun = sum(bool(self.rows_of(run)) for run in runs) - num_done
            lines.append(f"  {name}: {num_done} of {len(runs)} runs done, {num_begun} begun")
        return "\n".join(lines)

    def seconds_left(self) -> float:
        """Estimate the core-seconds to the card's budget of all unfinished runs.

        The estimate scales FLOPs by the measured time of the finished rows.
        """
        seconds = done_flops = flops_left = 0.0
        for run in self.runs:
            finished = self.rows_of(run)
            seconds += sum(row.core_seconds for row in finished)
            done_flops += sum(run.flops(level) for level in range(len(finished)))
            if not self.is_done(run):
                # A budget above the card's counts only once it is the next one.
                end = sum(share <= 1 for share in run.card.shares) if run.card.tokens else 1
                end = max(end, len(finished) + 1)
                flops_left += sum(run.flops(level) for level in range(len(finished), end))
        return flops_left * (seconds / done_flops if seconds else 1 / _CORE_FLOPS)
