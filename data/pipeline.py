"""From prepared data to batches."""

import hashlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import absl.flags
import grain
import numpy as np

from data.config import DataConfig
from data.mixture import mixture
from data.packing import Row
from data.store import TokenStore
from data.tokenizer import Tokenizer

Batch = dict[str, np.ndarray]
_PREFETCH = 4  # batches built ahead


class HostBatches(grain.MapDataset[Batch]):
    """Batch number s holds rows s * batch_size ...; this host's are some of them, in order."""

    def __init__(
        self,
        rows: grain.MapDataset[Row],
        batch_size: int,
        *,
        start_step: int,
        host_rows: Sequence[int],
    ):
        super().__init__(rows)
        self._batch_size, self._start_step = batch_size, start_step
        self._host_rows = host_rows

    def __len__(self) -> int:
        return sys.maxsize // self._batch_size - self._start_step

    def __getitem__(self, index):
        """The batch `index` steps after the first."""
        if isinstance(index, slice):
            return self.slice(index)
        first = (self._start_step + index) * self._batch_size
        numbers = [first + row for row in self._host_rows]
        rows: list = list(self._parent._getitems(numbers))  # grain's batched read
        batch = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
        batch["row_hash"] = np.array(
            [
                row_hash(number, tokens)
                for number, tokens in zip(numbers, batch["tokens"], strict=True)
            ],
            np.uint64,
        )
        return batch


def row_hash(number: int, tokens: np.ndarray) -> int:
    """64 bits of a row's number and ids.

    The sum over rows mod 2^64 says which rows were consumed, in whatever order and on whatever
    host: two arms of a sweep, or a run before and after a resume, compare it.
    """
    digest = hashlib.blake2b(number.to_bytes(8, "little"), digest_size=8)
    digest.update(tokens.astype("<i4", copy=False).tobytes())
    return int.from_bytes(digest.digest(), "little")


def make_batches(
    config: DataConfig,
    prepared: Path,
    *,
    start_step: int,
    host_rows: Sequence[int] | None = None,
) -> Iterator[Batch]:
    """Endless batches from step `start_step` on: the contract of `data`, this host's rows.

    Row r of training is a pure function of (data fingerprint, config.seed, r), and step s consumes
    rows s * batch_size ... (s + 1) * batch_size - 1. So a resumed run continues exactly, and
    neither the number of hosts nor of workers changes the stream.

    Args:
      prepared: what `data.prepare.prepare` returned.
      host_rows: which rows of each batch are wanted, of 0 ... batch_size - 1; None means all.

    Raises:
      ValueError: if `prepared` is damaged or too small for one row.
    """
    tokenizer = Tokenizer(prepared / "tokenizer.model")
    store = None if config.source == "retrieval" else TokenStore(prepared / "train")
    dataset = HostBatches(
        mixture(config, store, tokenizer),
        config.batch_size,
        start_step=start_step,
        host_rows=range(config.batch_size) if host_rows is None else host_rows,
    )
    options = grain.ReadOptions(num_threads=1, prefetch_buffer_size=_PREFETCH)
    stream = dataset.to_iter_dataset(options)
    if config.num_workers:
        if (
            not absl.flags.FLAGS.is_parsed()
        ):  # grain asks absl for a flag; not all programs use absl
            absl.flags.FLAGS.mark_as_parsed()
        stream = stream.mp_prefetch(
            grain.MultiprocessingOptions(
                num_workers=config.num_workers, per_worker_buffer_size=_PREFETCH
            )
        )
    return iter(stream)


def fingerprint(config: DataConfig, prepared: Path) -> str:
    """Identifies the tokenized data: two runs with equal fingerprint and config see equal rows."""
    if config.source == "retrieval":
        return hashlib.sha256((prepared / "tokenizer.model").read_bytes()).hexdigest()
    return TokenStore(prepared / "train").fingerprint
