"""Rows of a config, and batches of them by step.

Row r of training is a pure function of (data fingerprint, config.seed, r), and step s consumes rows
s * batch_size ... (s + 1) * batch_size - 1. So a resumed run continues exactly, and the number of
hosts or workers does not change the stream.
"""

import dataclasses
import functools
import hashlib
import itertools
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import resource_tracker
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ropewalk.data.config import DataConfig
from ropewalk.data.domains import Domain, fingerprint, open_domains
from ropewalk.data.mixture import Mixture, mixture, retrieval_task
from ropewalk.data.prepare import Plan, check_root, make_plan, prepare
from ropewalk.data.sources import source_class
from ropewalk.data.store import TokenStore
from ropewalk.data.task import TaskContext
from ropewalk.data.tokenizer import file_in
from ropewalk.data.verify import read_tokenizer
from ropewalk.utils import plugins
from ropewalk.utils.paths import as_path
from ropewalk.utils.threads import map_ahead

Batch = dict[str, np.ndarray]
_PREFETCH = 4  # batches built ahead


class TrainingData(NamedTuple):
    """Data as training uses it, from `open_data`.

    Attributes:
      config: the config of the rows; training reads batch size and number of workers from it.
      fingerprint: two runs with equal fingerprint and config see equal rows.
      tokenizer_path: file of the tokenizer (`data.tokenizer`).
      open_rows: returns the rows of a split, "train" or "validation"; raises ValueError if the
        prepared data is damaged or too small for one row.
      held_out: folder of the held-out documents that a run must keep, because the source differs
        by machine; None otherwise.
      held_out_fingerprint: of the held-out documents; "" if the source has no text.
    """

    config: DataConfig
    fingerprint: str
    tokenizer_path: Path
    open_rows: Callable[[str], Mixture]
    held_out: Path | None = None
    held_out_fingerprint: str = ""


def check_data(config: DataConfig) -> Plan:
    """Return the plan of the preparation of a config.

    Raises:
      ValueError: those of `open_data` that need no document to be read.
    """
    plan = make_plan(config)
    check_root(config)
    has_retrieval = config.retrieval_fraction or not config.has_text
    for text in config.retrieval_tasks if has_retrieval else ():
        task = retrieval_task(text)
        if plan.tokenizer:
            length, seed = config.context_length, config.seed
            context = TaskContext(data=config, tokenizer=plan.tokenizer, length=length, seed=seed)
            task.check(context)
    return plan


def absent_files(config: DataConfig) -> list[str]:
    """Return `field=path` of the text and of the tokenizer, for each that is not here."""
    fields = ["path"] if source_class(config.source).needs_path else []
    fields += ["tokenizer"] if config.tokenizer else []
    paths = {field: getattr(config, field) for field in fields}
    return [
        f"data.{field}={path or 'none'}"
        for field, path in paths.items()
        if path is None or not as_path(path).exists()
    ]


def open_data(config: DataConfig, prepared: Path | None = None) -> TrainingData:
    """Return the rows of `config`: packed text, retrieval documents, or a mixture.

    Args:
      config: what to train on.
      prepared: result of `data.prepare.prepare`; None prepares the data now if necessary.

    Raises:
      ValueError: on bad input, as `FILE:LINE: problem`; if the prepared data is damaged.
    """
    source = source_class(config.source)
    prepared = prepare(config) if prepared is None else prepared
    tokenizer = read_tokenizer(prepared)

    def open_rows(split: str) -> Mixture:
        texts = of_training
        if split != "train" and source.has_text:
            texts = [Domain("held-out text", 1.0, TokenStore(prepared / split))]
        return mixture(config, texts, tokenizer, split)

    of_training = open_domains(config, prepared) if source.has_text else []
    identity = fingerprint(of_training) if of_training else tokenizer.fingerprint
    validation = prepared / "validation"
    held_out = validation if source.differs_by_machine else None
    held_out_id = TokenStore(validation).fingerprint if source.has_text else ""
    return TrainingData(config, identity, file_in(prepared), open_rows, held_out, held_out_id)


@dataclasses.dataclass(frozen=True)
class HostBatches:
    """This host's part of the batches from `start_step` on."""

    rows: Mixture
    batch_size: int
    start_step: int
    host_rows: Sequence[int]

    def __len__(self) -> int:
        return sys.maxsize // self.batch_size - self.start_step

    def __getitem__(self, index: int) -> Batch:
        """Return the batch of step `start_step + index`."""
        first = (self.start_step + index) * self.batch_size
        numbers = [first + row for row in self.host_rows]
        rows = [self.rows[number] for number in numbers]
        batch = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
        hashes = map(row_hash, numbers, batch["tokens"])
        return batch | {"row_hash": np.fromiter(hashes, np.uint64)}


def row_hash(number: int, tokens: np.ndarray) -> int:
    """Return a 64-bit hash of a row's number and ids.

    The sum over rows mod 2^64 identifies the consumed rows independent of order and hosts. Members
    of a sweep, or a run before and after a resume, compare it.
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
    """Yield endless batches of this host's rows, after the contract of `data`.

    Args:
      data: the rows.
      start_step: step of the first batch.
      host_rows: this host's rows of each batch, from 0 ... batch_size - 1; None means all.
      split: "train" or "validation".

    Raises:
      ValueError: as `TrainingData.open_rows`.
    """
    size = data.config.batch_size
    host_rows = range(size) if host_rows is None else host_rows
    batches = HostBatches(data.open_rows(split), size, start_step, host_rows)
    if data.config.num_workers and split == "train":  # of validation few are read: no processes
        return _from_workers(batches, data.config.num_workers)
    return map_ahead(batches.__getitem__, itertools.count(), num_threads=1, ahead=_PREFETCH)


def _from_workers(batches: HostBatches, num_workers: int) -> Iterator[Batch]:
    import absl.flags
    import grain  # only worker processes need it

    if not absl.flags.FLAGS.is_parsed():  # grain reads an absl flag; most programs parse none
        absl.flags.FLAGS.mark_as_parsed()
    options = grain.ReadOptions(num_threads=1, prefetch_buffer_size=_PREFETCH)
    processes = grain.MultiprocessingOptions(
        num_workers=num_workers, per_worker_buffer_size=_PREFETCH
    )
    source = grain.MapDataset.source(batches)
    # Python's tracker removes the shared memory of a worker that was killed, and would say so; a
    # terminal that closes would end it, and its successor would not know what it removes.
    os.environ.setdefault("PYTHONWARNINGS", "ignore:resource_tracker")
    handler = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    resource_tracker.ensure_running()
    signal.signal(signal.SIGHUP, handler)
    # Workers build documents of tasks in users' files, and did not see the command line.
    prepare_worker = functools.partial(_prepare_worker, plugins.allowed())
    return iter(source.to_iter_dataset(options).mp_prefetch(processes, prepare_worker))


def _prepare_worker(paths: Sequence[str], worker: int, num_workers: int) -> None:
    """Let a new worker process execute the files that its parent may execute.

    Ctrl-C and the end of a terminal reach it too; its parent saves, and ends it. It ends itself if
    its parent is killed.
    """
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    for path in paths:
        plugins.allow(path)


def _end_with_parent() -> None:
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)
