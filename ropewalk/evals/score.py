"""Scores of answers in documents, teacher-forced: one forward pass per batch of documents.

Teacher-forced exact match equals greedy decoding: if the argmax after the true prefix is right at
every position of the answer, greedy decoding produces that answer; if not, greedy decoding differs
from the answer at the first wrong id.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from ropewalk.data.task import Document
from ropewalk.experiment.devices import free_device_memory, planned_bytes
from ropewalk.model import loss, transformer
from ropewalk.model.config import Architecture, ModelConfig, PositionTable
from ropewalk.model.loss import TokenScores
from ropewalk.model.positions import stack_tables
from ropewalk.model.transformer import Params

# Tokens of a forward pass: enough to fill the matrix units, but few enough for small memories.
_TOKENS_PER_PASS = {"cpu": 2**14}
_TOKENS_PER_ACCELERATOR_PASS = 2**17


class Candidate(NamedTuple):
    """A checkpoint under one rotary variant.

    Attributes:
      params: as from `transformer.init`.
      table_for: function from a row's number of tokens to its table; dynamic variants have
        different tables for different rows.
    """

    params: Params
    table_for: Callable[[int], PositionTable]

    @classmethod
    def from_model(cls, params: Params, model: ModelConfig, trained_length: int) -> "Candidate":
        """Return parameters under the variant of a config, trained at a length in tokens."""
        table = functools.partial(model.position_table, trained_length)
        return cls(params, functools.lru_cache(table))


class AnswerScores(NamedTuple):
    """Scores of answers, each field `[candidates, answers]`.

    Attributes:
      exact_match: bool, every id of the answer is the argmax.
      first_token_correct: bool, the first id is the argmax.
      nll: float64, nats, mean over the answer's ids; NaN if one is not finite.
      rank: int32, rank of the first id; 0 is best.
    """

    exact_match: np.ndarray
    first_token_correct: np.ndarray
    nll: np.ndarray
    rank: np.ndarray

    @staticmethod
    def dtypes() -> dict[str, type]:
        """Return the dtype of each field."""
        return dict(exact_match=bool, first_token_correct=bool, nll=np.float64, rank=np.int32)


class Batch(NamedTuple):
    """Documents padded to one length, `[B, T]` int32 each; segment 0 is padding."""

    tokens_BT: Any
    targets_BT: Any
    positions_BT: Any
    segment_ids_BT: Any


def score(
    config: Architecture,
    candidates: Sequence[Candidate],
    documents: Sequence[Document],
    length: int,
    *,
    shape: tuple[int, int] | None = None,
    advance: Callable[[int], None] = lambda documents_done: None,
) -> AnswerScores:
    """Score every answer of `documents`, in order, for every candidate.

    Scores of a row do not depend on the other rows of its batch. Accelerators score several
    candidates in one pass; a CPU is faster with one candidate at a time.

    Args:
      config: the static architecture; the candidates' tables have the positions.
      candidates: of that network.
      documents: at most length + 1 ids each.
      length: tokens to which documents are padded, so that one program serves all.
      shape: numbers of candidates and documents of a pass; None: `pass_shape`.
      advance: called with the number of documents scored since the last call.

    Raises:
      ValueError: if a pass does not fit the memory, before it runs.
    """
    per_pass, B = shape or pass_shape(len(candidates), len(documents), length)
    starts = range(0, len(documents), B)
    scores = []
    for first in range(0, len(candidates), per_pass):
        members = list(candidates[first : first + per_pass])
        # The last pass may have fewer candidates; padding lets it use the same program.
        padded = members + [members[-1]] * (per_pass - len(members))
        params = jax.device_put(jax.tree.map(_stack, *(candidate.params for candidate in padded)))
        parts = []
        for start in starts:
            rows = documents[start : start + B]
            arguments = params, _tables(padded, rows, B), _batch(rows, B, length)
            token_scores = _program(config, *arguments)(*arguments)
            nll, correct, rank = (x[: len(members)] for x in jax.device_get(token_scores))
            parts += [
                score_answers(nll[:, row], correct[:, row], rank[:, row], document.answers)
                for row, document in enumerate(rows)
            ]
            advance(len(rows) * len(members))
        scores.append([np.concatenate(part, axis=1) for part in zip(*parts, strict=True)])
    return AnswerScores(*map(np.concatenate, zip(*scores, strict=True)))


def check_fits(
    config: Architecture, candidates: Sequence[Candidate], num_documents: int, length: int
) -> None:
    """Compile what `score` will run.

    Raises:
      ValueError: if it needs more memory than there is; it names a length that would fit.
    """
    per_pass, B = pass_shape(len(candidates), num_documents, length)
    chosen = candidates[:per_pass]
    shapes = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((per_pass, *leaf.shape), leaf.dtype), chosen[0].params
    )
    batch = Batch(*[jax.ShapeDtypeStruct((B, length), np.int32)] * 4)
    tables = stack_tables([candidate.table_for(length) for candidate in chosen])
    _program(config, shapes, tables, batch)


def pass_shape(num_candidates: int, num_documents: int, length: int) -> tuple[int, int]:
    """Return the numbers of candidates and documents of one forward pass."""
    backend = jax.default_backend()
    tokens = _TOKENS_PER_PASS.get(backend, _TOKENS_PER_ACCELERATOR_PASS)
    per_pass = 1 if backend == "cpu" else max(1, min(num_candidates, tokens // length))
    # A power of two for few documents, so that a few more documents use the same program.
    rounded = 2 ** (num_documents - 1).bit_length()
    return per_pass, max(1, min(rounded, tokens // (per_pass * length)))


def _stack(*leaves):
    return leaves[0][None] if len(leaves) == 1 else np.stack(leaves)


def _batch(documents: Sequence[Document], B: int, length: int) -> Batch:
    tokens_BT = np.zeros((B, length + 1), np.int32)
    positions_BT, segment_ids_BT = np.zeros((2, B, length), np.int32)
    for row, document in enumerate(documents):
        count = len(document.tokens) - 1
        tokens_BT[row, : count + 1] = document.tokens
        segments = np.ones(count) if document.segment_ids is None else document.segment_ids
        segment_ids_BT[row, :count] = segments
        starts = np.flatnonzero(np.diff(segments, prepend=-1))
        positions_BT[row, :count] = np.arange(count) - np.repeat(
            starts, np.diff(starts, append=count)
        )
        positions_BT[row, :count] += document.first_position
    return Batch(tokens_BT[:, :-1], tokens_BT[:, 1:], positions_BT, segment_ids_BT)


def _tables(
    candidates: Sequence[Candidate], documents: Sequence[Document], B: int
) -> PositionTable:
    """Stack tables: `[candidates, L, ...]`, or `[candidates, B, L, ...]` if rows differ."""
    sizes = [len(document.tokens) - 1 for document in documents]
    sizes += sizes[:1] * (B - len(sizes))
    tables = [{size: candidate.table_for(size) for size in set(sizes)} for candidate in candidates]

    def equal(left: PositionTable, right: PositionTable) -> bool:
        return jax.tree.all(jax.tree.map(np.array_equal, left, right))

    if all(equal(table, by_size[sizes[0]]) for by_size in tables for table in by_size.values()):
        stacked = [by_size[sizes[0]] for by_size in tables]
    else:
        stacked = [stack_tables([by_size[size] for size in sizes]) for by_size in tables]
    return stack_tables(stacked)


def _program(config: Architecture, params: Params, tables: PositionTable, batch: Batch):
    """Return the program that scores arrays of these shapes; compiled once."""
    leaves, structure = jax.tree.flatten((params, tables, batch))
    shapes = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
    jax_config: Any = jax.config  # its attributes have no types
    return compiled_pass(config, shapes, structure, jax_config.jax_default_device)


@functools.lru_cache(maxsize=32)
def compiled_pass(config: Architecture, leaves, structure, device: Any):
    """Compile the scoring program for flattened shapes and types; see `jax.tree.flatten`.

    `device` is JAX's default device, for which it compiles; None is the first.
    """
    canonical = jax.dtypes.canonicalize_dtype  # frequencies are float64
    abstract = [jax.ShapeDtypeStruct(shape, canonical(dtype)) for shape, dtype in leaves]
    arguments = jax.tree.unflatten(structure, abstract)
    compiled = jax.jit(functools.partial(_token_scores, config)).lower(*arguments).compile()
    _check_memory(compiled, *arguments[2].tokens_BT.shape)
    return compiled


def _check_memory(compiled, B: int, length: int) -> None:
    needed, free = planned_bytes(compiled), free_device_memory()
    if free is not None and needed > free:
        fitting = max(1, int(length * free / needed))
        rows = "one row needs" if B == 1 else f"{B} rows need"
        raise ValueError(
            f"length {length} does not fit: {rows} {needed / 2**30:.1f} GiB and "
            f"{free / 2**30:.1f} GiB are free; try --lengths {2 ** (fitting.bit_length() - 1)}"
        )


def _token_scores(
    config: Architecture, params: Params, tables: PositionTable, batch: Batch
) -> TokenScores:
    """Score every position, `[candidates, B, T]`."""

    def candidate(params, table):
        hidden = functools.partial(transformer.hidden, config, params)
        rows = batch.tokens_BT, batch.positions_BT, batch.segment_ids_BT
        if table.window.ndim == 1:
            hidden_BTD = hidden(table, *rows)
        else:  # one table per row: each row is a batch of one
            hidden_BTD = jax.vmap(hidden)(table, *(x[:, None] for x in rows))[:, 0]
        return loss.token_scores(config, params, hidden_BTD, batch.targets_BT)

    # By default accelerators multiply float32 in fewer bits, and then logits tie.
    with jax.default_matmul_precision("highest"):
        return jax.vmap(candidate)(params, tables)


def score_answers(nll, correct, rank, answers) -> AnswerScores:
    """Reduce scores of a document's positions to scores of its answers.

    Args:
      nll, correct, rank: `[candidates, T]`; position p predicts id p + 1.
      answers: `[Q, 3]`: index of the answer's first id, number of ids, distance.
    """
    first, count = answers[:, 0] - 1, answers[:, 1]
    # With NaN logits no id compares above the target, which must not count as correct.
    finite = np.isfinite(nll)
    correct, rank = correct & finite, np.where(finite, rank, np.iinfo(np.int32).max)
    ranges = np.stack([first, first + count], axis=1).ravel()

    def total(x):
        # Differences of a cumulative sum would carry a number that is not finite to later answers.
        return np.add.reduceat(np.pad(x, ((0, 0), (0, 1))), ranges, axis=1, dtype=float)[:, ::2]

    return AnswerScores(
        exact_match=total(correct) == count,
        first_token_correct=correct[:, first],
        nll=total(np.where(finite, nll, np.nan)) / count,
        rank=rank[:, first],
    )
