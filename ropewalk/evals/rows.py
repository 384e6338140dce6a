"""Result rows: one schema for all tasks, and the only input of estimators and plots.

In memory, rows are columns: a dict of equally long numpy arrays. In `results.jsonl` every line is
the JSON object of one row. A missing float (the base of NoPE) is null in the file, NaN in memory.

Every line ends with `file`: the number of rows of the file, and the digest of all of them. So any
line that is left shows that others were deleted, changed, added or repeated. Files without it are
older, or somebody removed it: they are read, with a note.
"""

import hashlib
import itertools
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ropewalk.experiment.identity import disagreement
from ropewalk.experiment.records import row_problem
from ropewalk.experiment.run import RunDirectory
from ropewalk.utils.files import write_atomically
from ropewalk.utils.limits import parse_json, read_lines
from ropewalk.utils.locks import lock
from ropewalk.utils.messages import one_line, print_note, quoted

Rows = dict[str, np.ndarray]

SCHEMA: dict[str, type] = {
    "task": str,  # as an expression, `needle(haystack=noise)`
    "split": str,
    "run": str,  # name of the run directory
    "run_id": str,  # of its config, seeds and parameters (`experiment.identity`)
    "step": int,  # of the checkpoint
    "seed": int,  # of the initialization
    "rotary": str,  # the variant evaluated with, as an expression
    "base": float,  # of that variant; null where it has none
    "trained_length": int,  # tokens
    "length": int,  # context length of the evaluation, tokens
    "distance": int,  # tokens from the information to where it is needed; perplexity: position
    "document": int,  # the same number is the same document for every run
    "query": int,  # which of the document's questions
    "num_tokens": int,  # of the answer
    "exact_match": bool,  # every token of the answer is the most likely one
    "first_token_correct": bool,
    "nll": float,  # nats, mean over the answer's tokens
    "rank": int,  # of the answer's first token, 0 is best
    "chance": float,  # exact_match of a guess
    "num_bytes": int,  # of the answer's text, where the task measures text; else 0
    "num_words": int,
}

# Rows that agree in these are one evaluation: a new one replaces the old.
EVALUATION = ("task", "split", "length", "step", "rotary")

_DTYPES = {str: np.str_, int: np.int64, float: np.float64, bool: np.bool_}
_KINDS = {name: float | None if kind is float else kind for name, kind in SCHEMA.items()}


def _names_of(kind: type) -> list[str]:
    return [name for name, column_kind in SCHEMA.items() if column_kind is kind]


def columns(rows: Sequence[dict[str, Any]]) -> Rows:
    """Convert dicts with every column of the schema to columns."""
    return {
        name: np.array([row[name] for row in rows], _DTYPES[kind]) for name, kind in SCHEMA.items()
    }


def concatenate(parts: Sequence[Rows]) -> Rows:
    """Concatenate the rows of all parts, in order; one part without a copy."""
    if len(parts) == 1:
        return dict(parts[0])
    return {
        name: np.concatenate([part[name] for part in parts] or [np.array([], _DTYPES[kind])])
        for name, kind in SCHEMA.items()
    }


def select(rows: Rows, **values: Any) -> Rows:
    """Return the rows whose columns equal `values` (None: rows without a value)."""
    keep = np.ones(len(rows["task"]), bool)
    for name, value in values.items():
        keep &= np.isnan(rows[name]) if value is None else rows[name] == value
    return where(rows, keep)


def where(rows: Rows, keep: np.ndarray) -> Rows:
    """Return the rows that are marked, bool; all of them without a copy."""
    if keep.all():
        return dict(rows)
    return {name: column[keep] for name, column in rows.items()}


def replace(old: Rows, new: Rows) -> Rows:
    """Return `new` appended to the rows of `old` that belong to other evaluations."""
    renewed = set(_evaluations(new))
    keep = np.array([key not in renewed for key in _evaluations(old)], bool)
    return concatenate([{name: column[keep] for name, column in old.items()}, new])


def _evaluations(rows: Rows) -> list[tuple]:
    return list(zip(*(rows[name].tolist() for name in EVALUATION), strict=True))


def read_run(run: RunDirectory) -> Rows:
    """Return the result rows of `run`; none if it was not evaluated.

    Raises:
      ValueError: as `read`, or if the rows do not have the config, seeds and parameters of `run`.
    """
    path = run.results_path
    if not path.exists():
        return columns([])
    rows = read(path)
    pairs = zip(rows["step"].tolist(), rows["run_id"].tolist(), strict=True)
    for step, identity in sorted(set(pairs)):
        if reason := disagreement(run, step, identity):
            name = quoted(str(select(rows, run_id=identity)["run"][0]))
            raise ValueError(
                f"{path} holds rows of another run ({name}: {reason}); restore the run's own file, "
                "or delete it and evaluate again"
            )
    return rows


def add(path: Path, new: Rows) -> None:
    """Replace rows in the file `path`, locked so that concurrent processes lose no rows."""
    with lock(path.with_name(f".{path.name}.lock")):
        old = read(path) if path.exists() else columns([])
        write(path, replace(old, new))


def write(path: Path, rows: Rows) -> None:
    """Write rows as JSON lines, atomically: readers see the old file or the new one."""
    lists = [
        [None if value != value else value for value in rows[name].tolist()] for name in SCHEMA
    ]
    encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
    records = (dict(zip(SCHEMA, values, strict=True)) for values in zip(*lists, strict=True))
    bodies = [encode(record).removesuffix("}") for record in records]
    seal = _seal(len(bodies), hashlib.sha256("".join(f"{body}\n" for body in bodies).encode()))
    write_atomically(path, "".join(f'{body},"file":"{seal}"}}\n' for body in bodies))


def _seal(count: int, digest: Any) -> str:
    """Return the field `file`: the number of rows and the digest of their JSON without it."""
    return f"{count}-{digest.hexdigest()[:16]}"


def read(path: Path) -> Rows:
    """Read a file of rows.

    Raises:
      ValueError: for the first line that is not a row of this schema or contradicts itself, as
        file:line, or if the rows are not those that were written.
    """
    parts, count, digest, written = [], 0, hashlib.sha256(), set()
    file = read_lines(path)
    # Blocks, because the objects of all lines would take twenty times the file's size.
    while lines := list(itertools.islice(file, _BLOCK)):
        for index, line in enumerate(lines):
            sealed = _SEALED.fullmatch(line)
            written.add(sealed and sealed[2].decode())
            if sealed:
                lines[index] = sealed[1] + b"}"
                digest.update(sealed[1] + b"\n")
        parts.append(_parse(lines, path, count + 1))
        count += len(lines)
    rows = columns([])
    if parts:  # each column of the parts is freed when it is joined
        rows = {name: np.concatenate([part.pop(name) for part in parts]) for name in SCHEMA}
    if written == {None}:
        if _has_repeated(rows):
            raise ValueError(
                f"{path} has some answers twice; restore a copy, or delete it and evaluate again"
            )
        what = "no digest of its rows (an older file); lost rows cannot be noticed"
        print_note(None, f"{path}: {what}")
    elif written != {_seal(count, digest)}:
        raise ValueError(
            f"{path} has {count:,} rows, not those that were written; restore a copy, or delete it "
            "and evaluate again"
        )
    return rows


def _has_repeated(rows: Rows) -> bool:
    """Return whether two rows are of one answer. A digest tells the same sooner."""
    names = (*EVALUATION, "document", "query")
    return len(set(zip(*(rows[name].tolist() for name in names), strict=True))) < len(rows["task"])


_BLOCK = 4096
_SEALED = re.compile(rb'(\{.*),"file":"(\d{1,12}-[0-9a-f]{16})"\}\n?')


def _parse(lines: Sequence[bytes], path: Path, first: int) -> Rows:
    """Parse lines; raise ValueError for one that is not a row. `first` is the first's number."""
    types, advice = set(), "delete the file and evaluate again"
    try:
        rows = json.loads((b"[" + b",".join(lines) + b"]").decode())  # faster than line by line
    except (ValueError, RecursionError):
        rows = []
    if len(rows) != len(lines):
        rows = []
        for number, line in enumerate(lines, first):
            try:
                rows.append(parse_json(line))
            except ValueError as error:
                raise ValueError(f"{path}:{number}: {error}; {advice}") from None
    for number, row in enumerate(rows, first):
        # Rows of equal types need one check, which is slow.
        row_types = isinstance(row, dict) and (*row, *map(type, row.values()))
        if row_types not in types:
            wrong = row_problem(row, _KINDS)
            if not wrong and (names := sorted(row.keys() ^ SCHEMA.keys())):
                wrong = f"a row of another schema (differs in: {one_line(', '.join(names), 100)})"
            if wrong:
                raise ValueError(f"{path}:{number}: {wrong}; {advice}")
            types.add(row_types)
    try:
        part = columns(rows)
    except OverflowError:
        raise ValueError(f"{path}: a whole number of more than 64 bits; {advice}") from None
    with np.errstate(invalid="ignore"):  # a missing number contradicts nothing
        for text, is_broken in _BROKEN.items():
            for index in np.flatnonzero(is_broken(part))[:1].tolist():
                raise ValueError(f"{path}:{first + index}: {text}; {advice}")
    return part


# A seed or a distance may be below 0.
_COUNTS = [name for name in _names_of(int) if name not in ("seed", "distance")]
# Statements that are true of no row.
_BROKEN: dict[str, Callable[[Rows], Any]] = {
    "text that cannot be printed": lambda r: np.array(
        [[not text.isprintable() for text in r[name].tolist()] for name in _names_of(str)]
    ).any(axis=0),
    "a number that is not finite": lambda r: np.isinf([r[n] for n in _names_of(float)]).any(axis=0),
    "exact_match without first_token_correct": lambda r: (
        r["exact_match"] & ~r["first_token_correct"]
    ),
    "first_token_correct with a rank above 0": lambda r: r["first_token_correct"] & (r["rank"] > 0),
    "one token, and exact_match differs from first_token_correct": lambda r: (
        (r["num_tokens"] == 1) & (r["exact_match"] != r["first_token_correct"])
    ),
    "nll below 0": lambda r: r["nll"] < -1e-3,  # rounding of float32
    "distance outside 0 to length": lambda r: (r["distance"] < 0) | (r["distance"] > r["length"]),
    "chance outside 0 to 1": lambda r: (r["chance"] < 0) | (r["chance"] > 1),
    "a count below 0, or an answer without tokens": lambda r: (
        (np.min([r[name] for name in _COUNTS], axis=0) < 0) | (r["num_tokens"] < 1)
    ),
}
