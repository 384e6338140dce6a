"""Result rows of a study: one small file for each run and budget, in `studies/STUDY/rows/`.

    CARD/MEMBER,seed=K.TOKENS.json.gz    the config, and the answers counted by document and fine
                                         bin of distance (`evals.estimate.bins`)

The rows are committed. They alone make the report and decide what is finished, so another machine
continues with what is missing.
"""

import dataclasses
import gzip
import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evals.estimate.bins import fine_bin_number
from evals.estimate.trials import Trials
from evals.rows import Rows
from experiment.config import ExperimentConfig, from_dict, to_dict
from experiment.run import flatten, is_operational
from utils.errors import UnreachableError
from utils.files import write_atomically
from utils.limits import gunzip, parse_json, read_bytes
from utils.messages import one_line, quoted

# Version of the files. Rows of another version must be measured again.
VERSION = 1


class Counts(NamedTuple):
    """Counted answers to one retrieval task. The file has the same names.

    Attributes:
      chance: exact match of a guess.
      shortest, longest: distances measured, tokens.
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
    def from_rows(cls, rows: Rows) -> "Counts":
        """Count the result rows of one seed, task and length."""
        trials = Trials.from_rows(rows)
        return cls(
            chance=trials.chance,
            shortest=int(rows["distance"].min()),
            longest=int(rows["distance"].max()),
            fine=fine_bin_number(trials.low),
            asked=trials.questions[0].astype(int),
            right=trials.right[0].astype(int),
        )

    def columns(self, seed: int) -> dict[str, np.ndarray]:
        """Return the columns that `evals.estimate.trials.Trials.from_counts` reads.

        Columns of several seeds can be concatenated.
        """
        document, column = np.nonzero(self.asked)
        return {
            "seed": np.full(len(document), seed),
            "document": document,
            "bin": self.fine[column],
            "questions": self.asked[document, column],
            "right": self.right[document, column],
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answers:
    """Result of one task at one length, by one of a card's measurements.

    Attributes:
      measurement: its name.
      task: expression of the task.
      length: context length, tokens.
      value: the headline number of the task's kind (`evals.kinds`).
      counts: counted answers of a retrieval task; None for other tasks.
    """

    measurement: str
    task: str
    length: int
    value: float
    counts: Counts | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """Result of one run after one budget.

    Attributes:
      card, member: names.
      seed: seed of the run and of its data.
      tokens: tokens trained on.
      final: why the run ends here: "converged", "not converged" (at twice the card's budget) or
        "as planned" (a card without a budget); empty if it continues.
      config: config of the run; `train.py` makes the same parameters with it.
      answers: results of all measurements.
      l50, mean_accuracy, ceiling: of the first retrieval task, which decided `final`; NaN if there
        is none. L50 is infinite beyond all distances measured, NaN if nothing was learned.
      losses: the last losses in nats, by their names in metrics.jsonl.
      made_by: commit, estimator, versions of jax and python, and device.
      core_seconds: cost of this budget: training, decay and measurement.
      inv_freq: learned frequencies by layer, head and pair, radians per token; empty if there are
        none.
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
    inv_freq: tuple[tuple[tuple[float, ...], ...], ...] = ()

    @property
    def name(self) -> str:
        """Name of the file in the rows of a study."""
        return file_name(self.card, self.member, self.seed, self.tokens)


def run_name(member: str, seed: int) -> str:
    """Return the name of a member's run with one seed."""
    return f"{member},seed={seed}"


def file_name(card: str, member: str, seed: int, tokens: int) -> str:
    """Return the name of a row's file in the rows of a study."""
    return f"{card}/{run_name(member, seed)}.{tokens}.json.gz"


def write(folder: Path, row: Row) -> Path:
    """Write a row atomically into the rows of a study; return its path."""
    path = folder / row.name
    path.parent.mkdir(parents=True, exist_ok=True)
    record = {"version": VERSION} | _to_json(row)
    text = json.dumps(record, separators=(",", ":"), allow_nan=False)
    # Without a time stamp, equal rows are equal files.
    write_atomically(path, gzip.compress(text.encode(), mtime=0))
    return path


def _to_json(value: Any) -> Any:
    """Convert to JSON values; infinite floats and NaN become strings."""
    if isinstance(value, ExperimentConfig):
        return to_dict(value)
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Row | Answers):
        value = vars(value)
    elif isinstance(value, Counts):
        value = value._asdict()
    if isinstance(value, dict):
        return {name: _to_json(item) for name, item in value.items()}
    return [_to_json(item) for item in value] if isinstance(value, tuple) else value


def read(path: Path) -> Row:
    """Read a row.

    Raises:
      ValueError: if the file is damaged or has another version.
    """
    advice = "delete it, and `run` measures it anew"
    try:
        record = parse_json(gunzip(read_bytes(path)))
        if (version := record.pop("version")) != VERSION:
            raise ValueError(f"rows of version {quoted(version)}, not {VERSION}")
        for name in ("l50", "mean_accuracy", "ceiling"):
            record[name] = float(record[name])
        record["losses"] = {name: float(loss) for name, loss in record["losses"].items()}
        record["config"] = from_dict(record["config"])
        learned = record.get("inv_freq", ())
        record["inv_freq"] = tuple(tuple(map(tuple, layer)) for layer in learned)
        record["answers"] = tuple(_read_answers(**item) for item in record["answers"])
        return Row(**record)
    except UnreachableError:
        raise
    except (OSError, KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        reason = one_line(str(error), 120)
        raise ValueError(f"{path} is damaged ({reason}); {advice}") from error


def _read_answers(*, value: Any, counts: dict[str, Any] | None, **fields: Any) -> Answers:
    arrays = counts and {k: np.array(v) if isinstance(v, list) else v for k, v in counts.items()}
    return Answers(value=float(value), counts=Counts(**arrays) if arrays else None, **fields)


def read_all(folder: Path) -> list[Row]:
    """Read all rows in a folder, by name.

    Raises:
      ValueError: as `read` does, at the first bad file, or if a file has the row of another run.
    """
    rows = {path: read(path) for path in sorted(folder.rglob("*.json.gz"))}
    for path, row in rows.items():
        if path.parts[-2:] != Path(row.name).parts:
            raise ValueError(f"{path} has the row of {row.name}; delete it, or rename it so")
    return list(rows.values())


def check(row: Row, card: str, config: ExperimentConfig, estimator: int) -> None:
    """Check that a row matches its card as the card is now.

    Args:
      row: the row.
      card: name of the card.
      config: config of the card for the row's run and budget.
      estimator: current version of the estimator.

    Raises:
      ValueError: naming the first difference.
    """
    advice = "delete that row, and `run` measures it anew"
    old, new = (
        {name: x for name, x in flatten(to_dict(c)).items() if not is_operational(name)}
        for c in (row.config, config)
    )
    for name in new:
        if old.get(name) != new[name]:
            raise ValueError(
                f"{row.name} has {name}={old.get(name)}, and card {card} now has "
                f"{name}={new[name]}; {advice}"
            )
    if row.made_by.get("estimator") != estimator:
        raise ValueError(
            f"{row.name} has estimator {row.made_by.get('estimator')}, and the current estimator "
            f"is {estimator}; {advice}"
        )
