"""What of a study is still to be done, and who does it.

Rows alone decide it. Locks keep two workers from one run; a killed worker's are gone with it.
"""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from data.locks import try_lock
from evals.estimate.effective_context import ESTIMATOR
from settings.messages import nearest
from settings.places import in_bucket
from studies import folder, load_cards, rows
from studies.card import Card
from studies.piece import Piece, Run, runs_of
from studies.rows import Row
from training.sweep import shared_part


class Job(NamedTuple):
    """What a study is asked to do.

    Attributes:
      study: its name.
      cards: names, in the order in which they are done.
      seeds: of each member; all cards are done with the first one before the next.
      workdir: where runs lie while they are trained, on a disk or in a bucket.
      rows: where finished rows lie, on a disk or in a bucket.
    """

    study: str
    cards: tuple[str, ...]
    seeds: tuple[int, ...]
    workdir: Path
    rows: Path

    @property
    def here(self) -> Path:
        """Where locks and logs lie, on a disk: of a bucket, what this machine's workers share."""
        if not in_bucket(self.workdir):
            return self.workdir
        return Path("runs", *self.workdir.parts[1:])


def numbers(text: str) -> list[int]:
    """Seeds as a command line has them.

    Raises:
      ValueError: if they are no whole numbers between commas.
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
    kept: Path | None = None,
) -> Job:
    """The job that a command line describes; `kept` is where rows lie, if not with the study.

    Raises:
      ValueError: for a study or a card that does not exist, with the nearest name.
    """
    cards = load_cards(study)
    for name in only:
        if name not in cards:
            raise ValueError(f"study {study} has no card {name!r}; {nearest(name, cards)}")
    chosen = tuple(only or cards)
    workdir = Path("runs/studies") / study if workdir is None else workdir
    kept = folder(study) / "rows" if kept is None else kept
    return Job(study, chosen, tuple(dict.fromkeys(seeds)), workdir, kept)


def every_run(job: Job, cards: dict[str, Card]) -> Iterator[Run]:
    """The runs of a job, seed by seed and card by card."""
    for seed in job.seeds:
        for name in job.cards:
            yield from runs_of(cards[name], [seed])


def parts(job: Job, *, apart: bool) -> list[list[Run]]:
    """A job's runs as parts that machines can work on without each other, done or not: a part has
    the same number whenever it is asked for.

    Args:
      job: what is asked.
      apart: each run as a part; else those of a card, shape and seed are one, which a GPU or a TPU
        trains together.
    """
    found: dict[Any, list[Run]] = {}
    for run in every_run(job, load_cards(job.study)):
        key = run.card.name, run.seed, shared_part(run.levels[0])
        found.setdefault(run.path if apart else key, []).append(run)
    return list(found.values())


class Queue:
    """The runs of a job, their finished rows, and pieces of what is missing."""

    def __init__(self, job: Job, runs: Sequence[Run] | None = None):
        """Reads all rows of the job's cards.

        Args:
          job: what is asked.
          runs: some of its runs, to be worked on without the rest; None: all.

        Raises:
          ValueError: if a row is damaged or not of its card as it is today.
        """
        cards = load_cards(job.study)
        self.job = job
        self.runs = [*every_run(job, cards)] if runs is None else list(runs)
        self._rows: dict[Path, Row] = {}
        for name in job.cards:
            self._check_rows(cards[name])

    def _check_rows(self, card: Card) -> None:
        found = rows.read_all(self.job.rows / card.name)
        configs = {
            (run.member, run.seed, run.tokens(level)): config
            for run in runs_of(card, sorted({row.seed for row in found}))
            for level, config in enumerate(run.levels)
        }
        for row in found:
            config = configs.get((row.member, row.seed, row.tokens))
            if config is None:
                raise ValueError(
                    f"{row.name} is of no run of card {card.name} as it is now; delete that row, "
                    "or restore the card's members and budget"
                )
            rows.check(row, card, config, ESTIMATOR)

    def rows_of(self, run: Run) -> list[Row]:
        """The finished rows of a run, as far as none is missing before them."""
        found = []
        for level in range(len(run.levels)):
            row = self._row(run, level)
            if row is None:
                break
            found.append(row)
            if row.final:
                break
        return found

    def _row(self, run: Run, level: int) -> Row | None:
        path = self.job.rows / rows.file_name(
            run.card.name, run.member, run.seed, run.tokens(level)
        )
        if path not in self._rows and path.exists():
            self._rows[path] = rows.read(path)
        return self._rows.get(path)

    def is_done(self, run: Run) -> bool:
        """Whether a run is trained no further."""
        found = self.rows_of(run)
        return bool(found and found[-1].final)

    def pending(self, *, together: bool) -> list[Piece]:
        """What is to be done next of every unfinished run: seed by seed, card by card, and in a
        card what is least trained first.

        Args:
          together: runs of one shape and seed as one piece, for devices that train several in the
            time of one.
        """
        waiting = [(run, len(self.rows_of(run))) for run in self.runs if not self.is_done(run)]
        seeds, cards = self.job.seeds, self.job.cards
        waiting.sort(key=lambda w: (seeds.index(w[0].seed), cards.index(w[0].card.name), w[1]))
        groups: dict[Any, list[tuple[Run, int]]] = {}
        for run, level in waiting:
            key = run.card.name, level, run.seed, shared_part(run.levels[level])
            groups.setdefault(key if together else run.path, []).append((run, level))
        return [Piece(tuple(run for run, _ in group), group[0][1]) for group in groups.values()]

    @contextlib.contextmanager
    def claim(self, *, together: bool) -> Iterator[Piece | None]:
        """The first piece that nobody is at, locked while it is held; None if there is none."""
        for piece in self.pending(together=together):
            with contextlib.ExitStack() as locks:
                free = all(locks.enter_context(self._lock(run)) for run in piece.runs)
                # Another worker may have finished it since it was listed.
                if free and all(len(self.rows_of(run)) == piece.level for run in piece.runs):
                    yield piece
                    return
        yield None

    @contextlib.contextmanager
    def _lock(self, run: Run) -> Iterator[bool]:
        path = self.job.here / "locks" / f"{run.path}.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        with try_lock(path) as held:
            yield held is not None
