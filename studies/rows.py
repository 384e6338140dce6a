"""What a study keeps: one small file for each run and doubling, in `studies/STUDY/rows/`.

    CARD/MEMBER,seed=K.TOKENS.json.gz    what was run, and its answers counted by document and
                                         fine bin of distance (`evals.estimate.bins`)

They are committed: a study's report is made from them alone, and what is done is decided by them
alone, so that another machine goes on with what is missing.
"""

import dataclasses
import gzip
import json
import math
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from data.files import write_atomically
from evals.estimate.bins import fine_bin_number
from evals.rows import Rows
from experiment.config import ExperimentConfig, from_dict, to_dict
from experiment.run import flatten, is_operational
from settings.places import UnreachableError
from studies.card import Card

# Of the files. A study whose rows have another one is measured anew.
VERSION = 1


class Counts(NamedTuple):
    """Answers to one retrieval task, counted.

    Attributes:
      chance: exact match of a guess.
      shortest, longest: distances asked, tokens.
      fine: int `[F]`, the fine bins that have questions.
      asked, right: int `[documents, F]`, numbers of questions and of exact matches.
    """

    chance: float
    shortest: int
    longest: int
    fine: np.ndarray
    asked: np.ndarray
    right: np.ndarray

    @classmethod
    def of(cls, rows: Rows) -> "Counts":
        """Of the rows of one seed, task and length."""
        fine, place = np.unique(fine_bin_number(rows["distance"]), return_inverse=True)
        documents, document = np.unique(rows["document"], return_inverse=True)
        shape = len(documents), len(fine)
        cell = np.ravel_multi_index((document, place), shape)

        def count(weights: np.ndarray | None) -> np.ndarray:
            counted = np.bincount(cell, weights, minlength=math.prod(shape))
            return counted.reshape(shape).astype(int)

        return cls(
            chance=float(rows["chance"][0]),
            shortest=int(rows["distance"].min()),
            longest=int(rows["distance"].max()),
            fine=fine,
            asked=count(None),
            right=count(rows["exact_match"]),
        )

    def columns(self, seed: int) -> dict[str, np.ndarray]:
        """As `evals.estimate.trials.Trials.of_counts` reads them; of several seeds, one after the
        other."""
        document, place = np.nonzero(self.asked)
        return {
            "seed": np.full(len(document), seed),
            "document": document,
            "bin": self.fine[place],
            "asked": self.asked[document, place],
            "right": self.right[document, place],
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answers:
    """One task at one length, by one of a card's measurements.

    Attributes:
      measurement: its name.
      task: as an expression.
      length: tokens.
      value: the one number of the task's kind (`evals.kinds`).
      counts: of retrieval; None where a task measures something else.
    """

    measurement: str
    task: str
    length: int
    value: float
    counts: Counts | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One run after one doubling.

    Attributes:
      card, member: names.
      seed: of the run; `data.seed` is the same.
      tokens: it was trained on.
      final: why it was not trained further: "converged", "not converged" (at twice the budget) or
        "as planned" (a card without a budget); empty if it was.
      config: of the run; `train.py` with it gives the same parameters.
      answers: what was measured.
      l50, mean_accuracy, ceiling: of the first retrieval task measured, which decided `final`; NaN
        where there is none. L50 is inf beyond all distances asked, NaN where nothing was learned.
      losses: the last ones, in nats, by the names of metrics.jsonl.
      made_by: versions and machine: commit, estimator, jax, python, device.
      core_seconds: of this doubling: training, its last part decayed, and measuring.
    """

    card: str
    member: str
    seed: int
    tokens: int
    final: str
    config: ExperimentConfig
    answers: tuple[Answers, ...]
    l50: float
    mean_accuracy: float
    ceiling: float
    losses: dict[str, float]
    made_by: dict[str, Any]
    core_seconds: float

    @property
    def name(self) -> str:
        """The file's, within the rows of a study."""
        return file_name(self.card, self.member, self.seed, self.tokens)

    def find(self, measurement: str, task: str) -> Iterator[Answers]:
        """By a measurement and a task's name, whatever the task's parameters: one per length."""
        for each in self.answers:
            if each.measurement == measurement and each.task.partition("(")[0] == task:
                yield each


def run_name(member: str, seed: int) -> str:
    """Of a member's run with one seed, in file names and on the screen."""
    return f"{member},seed={seed}"


def file_name(card: str, member: str, seed: int, tokens: int) -> str:
    """Of a row, within the rows of a study."""
    return f"{card}/{run_name(member, seed)}.{tokens}.json.gz"


def write(folder: Path, row: Row) -> Path:
    """Writes a row under a study's rows; whoever reads it sees it whole or not at all."""
    record = {"version": VERSION} | {
        field.name: _plain(getattr(row, field.name)) for field in dataclasses.fields(row)
    }
    path = folder / row.name
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record, separators=(",", ":"), allow_nan=False)
    # Without a time: equal rows are equal files.
    write_atomically(path, gzip.compress(text.encode(), mtime=0))
    return path


def _plain(value: Any) -> Any:
    """As JSON. Floats that it does not have are words."""
    if isinstance(value, ExperimentConfig):
        return to_dict(value)
    if isinstance(value, Answers):
        return {name: _plain(x) for name, x in vars(value).items()}
    if isinstance(value, Counts):
        return {name: _plain(x) for name, x in value._asdict().items()}
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, dict):
        return {name: _plain(x) for name, x in value.items()}
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def read(path: Path) -> Row:
    """Reads what `write` wrote.

    Raises:
      ValueError: if the file is damaged, cut short, or of another version.
    """
    advice = "delete it, and `run` measures it anew"
    try:
        record = json.loads(gzip.decompress(path.read_bytes()))
        version = record.pop("version")
        if version != VERSION:
            raise ValueError(f"{path}: rows of version {version}, not {VERSION}; {advice}")
        for name in ("l50", "mean_accuracy", "ceiling"):
            record[name] = float(record[name])
        record["losses"] = {name: float(loss) for name, loss in record["losses"].items()}
        record["config"] = from_dict(record["config"])
        record["answers"] = tuple(_answers(**each) for each in record["answers"])
        return Row(**record)
    except UnreachableError:
        raise
    except (OSError, EOFError, zlib.error, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is damaged ({error}); {advice}") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is damaged ({error.msg}); {advice}") from error


def _answers(*, value: Any, counts: dict[str, Any] | None, **names: Any) -> Answers:
    arrays = counts and {k: np.array(x) if isinstance(x, list) else x for k, x in counts.items()}
    return Answers(value=float(value), counts=Counts(**arrays) if arrays else None, **names)


def read_all(folder: Path) -> list[Row]:
    """All rows in a folder, by name.

    Raises:
      ValueError: as `read` does, at the first bad file, or if a file holds the row of another run.
    """
    rows = {path: read(path) for path in sorted(folder.rglob("*.json.gz"))}
    for path, row in rows.items():
        if path.parts[-2:] != Path(row.name).parts:
            raise ValueError(f"{path} holds the row of {row.name}; delete it, or rename it so")
    return list(rows.values())


def check(row: Row, card: Card, config: ExperimentConfig, estimator: int) -> None:
    """Refuses a row that does not belong to what the card is today.

    Args:
      row: as read.
      card: with its name.
      config: what the card would have trained there.
      estimator: the version that reads the counts.

    Raises:
      ValueError: naming what differs.
    """
    advice = "delete that row, and `run` measures it anew"
    old, new = (
        {k: x for k, x in flatten(to_dict(each)).items() if not is_operational(k)}
        for each in (row.config, config)
    )
    for name in new:
        if old.get(name) != new[name]:
            raise ValueError(
                f"{row.name} is of a run with {name}={old.get(name)}, and card {card.name} now "
                f"has {name}={new[name]}; {advice}"
            )
    if row.made_by.get("estimator") != estimator:
        raise ValueError(
            f"{row.name} was judged by estimator {row.made_by.get('estimator')}, and this is "
            f"estimator {estimator}; {advice}"
        )
