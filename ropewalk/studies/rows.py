"""Result rows of a study: one file for each card, `rows/CARD.jsonl.xz`, one line for each run.

A row has the run's config, and its answers counted by document and fine bin of distance
(`evals.estimate.bins`). Rows are committed. They alone make the report and decide what is finished,
so another machine continues with what is missing. `xzcat rows/CARD.jsonl.xz` prints the lines.
"""

import dataclasses
import json
import lzma
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ropewalk.configs.changes import change
from ropewalk.evals.estimate.bins import fine_bin_number
from ropewalk.evals.estimate.trials import Trials
from ropewalk.evals.rows import Rows
from ropewalk.experiment.config import ExperimentConfig, deciding_fields, from_dict, to_dict
from ropewalk.utils.files import write_atomically
from ropewalk.utils.limits import decompress_xz, parse_json, read_bytes
from ropewalk.utils.locks import lock
from ropewalk.utils.messages import one_line

_VERSION = 2  # of the files; version 1 had one file for each row


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


class Losses(NamedTuple):
    """Losses on one task that is not retrieval. Documents of equal number are the same text.

    Attributes:
      document: int `[D]`, numbers of the documents.
      fine: int `[F]`, fine bins of the distance (perplexity: of the position).
      tokens: int `[D, F]`, numbers of scored tokens.
      nll: float `[D, F]`, sums of their losses, nats.
    """

    document: np.ndarray
    fine: np.ndarray
    tokens: np.ndarray
    nll: np.ndarray

    @classmethod
    def from_rows(cls, rows: Rows) -> "Losses":
        """Sum the result rows of one seed, task and length."""
        document, row = np.unique(rows["document"], return_inverse=True)
        fine, column = np.unique(fine_bin_number(rows["distance"]), return_inverse=True)
        tokens, nll = (np.zeros((len(document), len(fine))) for _ in range(2))
        np.add.at(tokens, (row, column), rows["num_tokens"])
        np.add.at(nll, (row, column), rows["num_tokens"] * rows["nll"])
        return cls(document, fine, tokens.astype(int), nll.round(4))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answers:
    """Result of one task at one length, by one of a card's measurements.

    Attributes:
      measurement: its name.
      task: expression of the task.
      length: context length, tokens.
      value: the headline number of the task's kind (`evals.kinds`).
      counts: counted answers of a retrieval task; None for other tasks.
      losses: of other tasks; None for retrieval, and in rows of version 1.
    """

    measurement: str
    task: str
    length: int
    value: float
    counts: Counts | None = None
    losses: Losses | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Row:
    """Result of one run.

    Attributes:
      card, member: names.
      seed: seed of the run and of its data.
      tokens: tokens trained on.
      final: why the member's budgets end here: "as planned"; "converged" or "not converged" in rows
        from before, which stopped where a doubling changed little; empty if they go on.
      config: config of the run; `train.py` makes the same parameters with it.
      answers: results of all measurements.
      numbers: "losses", the last ones in nats; "inv_freq", learned frequencies by layer, head and
        pair, radians per token; in rows from before also "l50", "mean_accuracy" and "ceiling", as
        estimated then. Infinity and NaN are text.
      made_by: commit, versions of jax and python, device, and digits of the tokenizer's digest.
      core_seconds: CPU time of training and measurement.
    """

    card: str
    member: str
    seed: int
    tokens: int
    final: str
    config: ExperimentConfig
    answers: tuple[Answers, ...]
    numbers: dict[str, Any]
    made_by: dict[str, Any]
    core_seconds: float

    @property
    def key(self) -> tuple[str, int, int]:
        """Member, seed and tokens: unique in a card."""
        return self.member, self.seed, self.tokens


def file_path(folder: Path, card: str) -> Path:
    """Return the file of a card's rows."""
    return folder / f"{card}.jsonl.xz"


def read(path: Path) -> list[Row]:
    """Read the rows of a card; none if there is no file.

    Raises:
      ValueError: if the file is damaged or has another version.
    """
    if not path.exists():
        return []
    try:
        lines = decompress_xz(read_bytes(path)).splitlines()
        return [_read_row(**parse_json(line)) for line in lines]
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        reason = one_line(str(error), 120)
        raise ValueError(f"{path} is damaged ({reason}); restore it, or delete it") from error


def read_all(folder: Path) -> list[Row]:
    """Read the rows of all cards. Raises ValueError as `read` does."""
    return [row for path in sorted(folder.glob("*.jsonl.xz")) for row in read(path)]


def append(folder: Path, new: Sequence[Row]) -> None:
    """Add rows of one card to its file, atomically; a row of the same run is replaced."""
    path = file_path(folder, new[0].card)
    path.parent.mkdir(parents=True, exist_ok=True)
    with lock(path.with_name(f".{path.name}.lock")):
        by_key = {row.key: row for row in (*read(path), *new)}
        lines = [_encode(by_key[key]) for key in sorted(by_key)]
        write_atomically(path, lzma.compress("".join(lines).encode()))


def _encode(row: Row) -> str:
    record = {"version": _VERSION} | _to_json(row)
    return json.dumps(record, separators=(",", ":"), allow_nan=False) + "\n"


def _to_json(value: Any) -> Any:
    """Convert to JSON values; infinite floats and NaN become strings."""
    if isinstance(value, ExperimentConfig):
        return to_dict(value)
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Row | Answers):
        value = {name: item for name, item in vars(value).items() if item is not None}
    elif isinstance(value, Counts | Losses):
        value = value._asdict()
    if isinstance(value, dict):
        return {name: _to_json(item) for name, item in value.items()}
    return [_to_json(item) for item in value] if isinstance(value, tuple | list) else value


def _read_row(*, version: int, config: Any, answers: Any, **fields: Any) -> Row:
    if version != _VERSION:
        raise ValueError(f"a row of version {version}, not {_VERSION}")
    answers = tuple(_read_answers(**item) for item in answers)
    return Row(config=from_dict(config), answers=answers, **fields)


def _read_answers(*, value: Any, counts: Any = None, losses: Any = None, **fields: Any) -> Answers:
    def arrays(record: dict[str, Any]) -> dict[str, Any]:
        return {k: np.array(v) if isinstance(v, list) else v for k, v in record.items()}

    return Answers(
        value=float(value),
        counts=Counts(**arrays(counts)) if counts else None,
        losses=Losses(**arrays(losses)) if losses else None,
        **fields,
    )


def without_folders(config: ExperimentConfig) -> ExperimentConfig:
    """Return a config without the folders of this machine: of paths, only the last name is left."""
    path, start = (x and Path(x).name for x in (config.data.path, config.start_from))
    return change(config, data=dict(path=path), start_from=start)


def check(row: Row, config: ExperimentConfig) -> None:
    """Check that a row has the config of its run as its card is now, wherever its text is.

    A card may leave `start_from` to the command line; only `run` knows it then.

    Raises:
      ValueError: naming the first difference.
    """
    old, new = deciding_fields(row.config), deciding_fields(without_folders(config))
    for name in new:
        is_open = name == "data.path" or (name == "start_from" and new[name] is None)
        if old.get(name) != new[name] and not is_open:
            raise ValueError(
                f"the row of {row.card}/{row.member},seed={row.seed} after {row.tokens} tokens has "
                f"{name}={old.get(name)}, and the card now has {name}={new[name]}; delete that "
                "row, or restore the card"
            )
