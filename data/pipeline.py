"""From rows by number to batches by step.

Row r of training is a pure function of (data fingerprint, config.seed, r), and step s consumes rows
s * batch_size ... (s + 1) * batch_size - 1. So a resumed run continues exactly, and neither the
number of hosts nor of workers changes the stream.
"""

import dataclasses
import functools
import hashlib
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from data.config import DataConfig
from data.mixture import mixture, retrieval_task
from data.packing import Row
from data.prepare import check_arguments, prepare
from data.store import TokenStore
from data.task import TaskContext
from data.threads import map_ahead
from data.tokenizer import file_in
from data.verify import read_tokenizer
from settings import folders

Batch = dict[str, np.ndarray]
_PREFETCH = 4  # batches built ahead


class Rows(Protocol):
    """Rows by their numbers, endless."""

    def __getitem__(self, index: int, /) -> Row: ...


class TrainingData(NamedTuple):
    """All that training asks of data: `open_data` finds it on disk, `rows_in_memory` has it.

    Attributes:
      config: what it was made from; its batch size and number of workers are read.
      fingerprint: two runs with equal fingerprint and config see equal rows.
      tokenizer_path: its file (`data.tokenizer`); None where rows never were text.
      open_rows: from a split, "train" or "validation", to its rows. Raises ValueError if what is
        prepared is damaged, or too small for one row.
      held_out: the store of held-out documents that a run keeps, because on another machine its
        text is another; None: it keeps none.
    """

    config: DataConfig
    fingerprint: str
    tokenizer_path: Path | None
    open_rows: Callable[[str], Rows]
    held_out: Path | None = None


def check_data(config: DataConfig) -> None:
    """Raise ValueError for what `open_data` would refuse, as far as no document need be read."""
    tokenizer = check_arguments(config)
    if not (config.retrieval_fraction or config.source == "retrieval"):
        return
    for text in config.retrieval_tasks:
        task = retrieval_task(text)
        if tokenizer:
            length, seed = config.context_length, config.seed
            task.check(TaskContext(data=config, tokenizer=tokenizer, length=length, seed=seed))


def open_data(config: DataConfig, prepared: Path | None = None) -> TrainingData:
    """The rows of `config`: packed text, retrieval documents, or a mixture.

    Args:
      config: what to train on.
      prepared: what `data.prepare.prepare` returned; None: found, or made, now.

    Raises:
      ValueError: on bad input, as `FILE:LINE: what is wrong`; if what is prepared is damaged.
    """
    prepared = prepare(config) if prepared is None else prepared
    path, has_text = file_in(prepared), config.source != "retrieval"
    tokenizer = read_tokenizer(prepared)

    def open_rows(split: str) -> Rows:
        store = TokenStore(prepared / split) if has_text else None
        return mixture(config, store, tokenizer, split)

    of_text = TokenStore(prepared / "train").fingerprint if has_text else tokenizer.fingerprint
    held_out = prepared / "validation" if config.source == "local" else None
    return TrainingData(config, of_text, path, open_rows, held_out)


def rows_in_memory(
    config: DataConfig, columns: Mapping[str, np.ndarray], held_out: Mapping[str, np.ndarray]
) -> TrainingData:
    """Rows that the caller has made, again and again in their order.

    Args:
      config: its batch size is read; its source is not.
      columns: the contract of `data`, `[number of rows, T]` each.
      held_out: the same, of the rows that validation reads.
    """
    splits = {"train": _Columns(columns), "validation": _Columns(held_out)}
    digest = hashlib.sha256()
    for name in sorted(columns):
        digest.update(name.encode() + np.ascontiguousarray(columns[name]).tobytes())

    return TrainingData(config, digest.hexdigest(), None, splits.__getitem__)


@dataclasses.dataclass(frozen=True)
class _Columns:
    columns: Mapping[str, np.ndarray]

    def __getitem__(self, index: int) -> Row:
        return {name: column[index % len(column)] for name, column in self.columns.items()}


@dataclasses.dataclass(frozen=True)
class HostBatches:
    """Batch number s holds rows s * batch_size ...; this host's are some of them, in order."""

    rows: Rows
    batch_size: int
    start_step: int
    host_rows: Sequence[int]

    def __len__(self) -> int:
        return sys.maxsize // self.batch_size - self.start_step

    def __getitem__(self, index: int) -> Batch:
        """The batch `index` steps after the first."""
        first = (self.start_step + index) * self.batch_size
        numbers = [first + row for row in self.host_rows]
        rows = [self.rows[number] for number in numbers]
        batch = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
        hashes = map(row_hash, numbers, batch["tokens"])
        return batch | {"row_hash": np.fromiter(hashes, np.uint64)}


def row_hash(number: int, tokens: np.ndarray) -> int:
    """64 bits of a row's number and ids.

    The sum over rows mod 2^64 says which rows were consumed, in whatever order and on whatever
    host: two arms of a sweep, or a run before and after a resume, compare it.
    """
    digest = hashlib.blake2b(number.to_bytes(8, "little"), digest_size=8)
    digest.update(tokens.astype("<i4", copy=False).tobytes())
    return int.from_bytes(digest.digest(), "little")


def make_batches(
    data: TrainingData,
    *,
    start_step: int,
    host_rows: Sequence[int] | None = None,
    split: str = "train",
) -> Iterator[Batch]:
    """Endless batches from step `start_step` on: the contract of `data`, this host's rows.

    Args:
      data: what rows are read from.
      start_step: of the first batch.
      host_rows: which rows of each batch are wanted, of 0 ... batch_size - 1; None means all.
      split: "train" or "validation".

    Raises:
      ValueError: as `TrainingData.open_rows` does.
    """
    size = data.config.batch_size
    host_rows = range(size) if host_rows is None else host_rows
    batches = HostBatches(data.open_rows(split), size, start_step, host_rows)
    if data.config.num_workers:
        return _from_workers(batches, data.config.num_workers)
    return map_ahead(batches.__getitem__, itertools.count(), num_threads=1, ahead=_PREFETCH)


def _from_workers(batches: HostBatches, num_workers: int) -> Iterator[Batch]:
    import absl.flags
    import grain  # nothing but processes needs it

    if not absl.flags.FLAGS.is_parsed():  # grain asks absl for a flag; not all programs use absl
        absl.flags.FLAGS.mark_as_parsed()
    options = grain.ReadOptions(num_threads=1, prefetch_buffer_size=_PREFETCH)
    processes = grain.MultiprocessingOptions(
        num_workers=num_workers, per_worker_buffer_size=_PREFETCH
    )
    source = grain.MapDataset.source(batches)
    # Workers build documents of the user's own tasks, and did not see the command line.
    allow_files = functools.partial(_allow_files, folders.allowed())
    return iter(source.to_iter_dataset(options).mp_prefetch(processes, allow_files))


def _allow_files(paths: Sequence[str], worker: int, num_workers: int) -> None:
    """Permit in a new worker process what its parent may execute."""
    for path in paths:
        folders.allow(path)
