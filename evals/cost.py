"""Memory and FLOPs of an evaluation, before anything is generated or compiled.

A forward pass of B rows of T tokens is estimated, for each candidate that shares it, as

    parameters + 4 bytes x max(tokens, logits) + attention

    tokens     B T (2 L K R + 2 D + max(3 F, 2 N H + 3 K H + N U)): cosines and sines of all
               layers, the residual stream, and the widest part of one layer (2 F without a gate)
    logits     2 V C + V D + 2 B T D, where C tokens have their logits at once (`model.loss`)
    attention  3 x 4 B N T^2 with `model.masked_distances`; all other kernels avoid T x T

with the letters of `model` and F for mlp_dim. XLA's analysis of the compiled program lies within a
factor of two (`tests/evals/test_cost.py`), so `check_length` only rejects lengths of which half of
the estimate exceeds the memory; `evals.score` checks the others with XLA's analysis.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from data.task import Document, Task, TaskContext
from experiment.config import ExperimentConfig
from experiment.memory import free_device_memory, free_host_memory
from experiment.metrics import flops_per_token
from model import axes, loss
from model.config import Architecture, PositionTable
from model.transformer import count_params

# Bytes of a result row: at its peak, while the run's file is written, and until the end.
_ROW_WRITTEN, _ROW_KEPT = 3 * 2**10, 2**10
_OBJECT = 2**10  # bytes of a document without its arrays
_ROWS = 2**14  # assumed bytes of a document's result rows, before one is generated
_SMALL = 2**28  # documents of fewer bytes are generated without an estimate


class DoesNotFitError(ValueError):
    """A length, or its documents, exceeds the memory."""


class Readers(NamedTuple):
    """Numbers of readers of each document.

    Attributes:
      variants: largest number of rotary variants of a member.
      candidates: number of variants of all members together.
    """

    variants: int
    candidates: int


class Needs(NamedTuple):
    """Needs of an evaluation.

    Attributes:
      documents: number of documents, counted once for each candidate.
      flops: FLOPs of all forward passes.
      host_bytes: estimated host memory of documents and result rows.
    """

    documents: int = 0
    flops: float = 0.0
    host_bytes: int = 0

    def plus(self, other: "Needs") -> "Needs":
        """Return the needs of both."""
        return Needs(
            self.documents + other.documents,
            self.flops + other.flops,
            self.host_bytes + other.host_bytes,
        )


def pass_bytes(config: Architecture, table: PositionTable, B: int, T: int) -> int:
    """Estimate the device memory of a forward pass of one candidate; see the module."""
    V, D, L = config.vocab_size, config.embed_dim, config.num_layers
    N, H = config.num_heads, config.head_dim
    U = H if config.mla is None else config.mla.v_head_dim
    pairs = table.cycles_hi.shape[-2] * table.cycles_hi.shape[-1]
    attention = 2 * N * H + 3 * config.kv_heads * H + N * U
    widest = max((2 + config.mlp_gate) * config.mlp_dim, attention)
    tokens = B * T * (2 * L * pairs + 2 * D + widest)
    at_once = config.loss_chunk or loss.tokens_at_once(V, axes.device_kind()) // B
    logits = 2 * V * B * min(T, max(1, at_once)) + V * D + 2 * B * T * D
    weights = 3 * B * N * T * T if config.masked_distances else 0
    return 4 * (count_params(config)["total"] + max(tokens, logits) + weights)


def check_length(config: Architecture, table: PositionTable, length: int) -> None:
    """Reject a length of which one row cannot fit the device.

    Raises:
      DoesNotFitError: with a length that would fit.
    """
    free = free_device_memory()
    needed = pass_bytes(config, table, 1, length)
    if free is None or needed // 2 <= free:
        return
    lengths = (2**power for power in range(length.bit_length() - 1, 0, -1))
    fitting = next((T for T in lengths if pass_bytes(config, table, 1, T) <= free), None)
    advice = (
        f"the longest power of two that fits is {fitting}"
        if fitting
        else "the model itself does not fit"
    )
    raise DoesNotFitError(
        f"length {length} does not fit: one row needs about {size(needed)} and {size(free)} are "
        f"free; {advice}"
    )


def host_bytes(documents: Sequence[Document], readers: Readers) -> int:
    """Estimate the host memory of documents and of their result rows."""
    arrays = sum(d.tokens.nbytes + d.answers.nbytes + _OBJECT for d in documents)
    rows = sum(len(document.answers) for document in documents)
    return arrays + rows * (readers.variants * _ROW_WRITTEN + readers.candidates * _ROW_KEPT)


def check_host(needed: float, what: str) -> None:
    """Raise DoesNotFitError if `needed` bytes for `what` are not free on this host."""
    free = free_host_memory()
    if free is not None and needed > free:
        raise DoesNotFitError(
            f"{what} do not fit: with their result rows they need about {size(needed)} and "
            f"{size(free)} are free; ask for fewer --documents or shorter --lengths"
        )


def check_documents(task: Task, context: TaskContext, count: int, readers: Readers) -> None:
    """Reject documents that do not fit the host; the first document predicts the memory of all.

    Raises:
      DoesNotFitError: before all documents are generated.
    """
    if count * (4 * context.length + _ROWS) < _SMALL:
        return
    try:
        first = task.documents(context, range(1))
        has_all = any(True for _ in task.sources(context, range(count - 1, count)))
    except ValueError:  # reported when all documents are generated
        return
    if has_all:  # else the text has fewer documents, and it fits the disk
        what = f"{count:,} documents of {task.expression} at length {context.length}"
        check_host(count * host_bytes(first, readers), what)


def flops_per_row(config: ExperimentConfig, length: int) -> float:
    """Return the FLOPs of one row's forward pass: a third of a training step's."""
    data = dataclasses.replace(config.data, context_length=length)
    return length * flops_per_token(dataclasses.replace(config, data=data)) / 3


def size(num_bytes: float) -> str:
    """Return a number of bytes as text."""
    return (
        f"{num_bytes / 2**30:,.1f} GiB" if num_bytes >= 2**30 else f"{num_bytes / 2**20:,.0f} MiB"
    )
