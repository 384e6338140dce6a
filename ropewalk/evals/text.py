"""Held-out text of a run, and its size in bytes and words, for tasks that need text."""

import dataclasses
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ropewalk.data.prepare import ON_DISK, note_unread, prepare
from ropewalk.data.sources import source_class
from ropewalk.data.store import TokenStore
from ropewalk.data.task import Document, Sample, Task, TaskContext
from ropewalk.data.tokenizer import Tokenizer
from ropewalk.data.verify import read_tokenizer
from ropewalk.utils.manifest import DamagedError, find_damages
from ropewalk.utils.messages import print_note
from ropewalk.utils.plugins import name_of


class MissingTextError(ValueError):
    """The run's text is missing on this machine; tasks without text are not affected."""


def prepared(context: TaskContext, *, task: str) -> Path:
    """Return the folder of `data.prepare` with the run's text.

    Raises:
      MissingTextError: if the text is missing on this machine, or differs.
    """
    try:
        folder = prepare(context.data, create=context.data.prepared_root == ON_DISK)
    except ValueError as error:
        raise MissingTextError(f"{task} needs the text the run was trained on: {error}") from error
    if read_tokenizer(folder) != context.tokenizer:
        way = "evaluate the run where it was trained"
        if source_class(context.data.source).differs_by_machine:
            way += ", or repeat its training command there, which adds the held-out text to it"
        raise MissingTextError(
            f"{task} needs the text the run was trained on, but {folder} has another tokenizer: "
            f"data.source={context.data.source} is not the same on this machine; {way}"
        )
    return folder


class Texts(NamedTuple):
    """Documents in memory, read as those of a `TokenStore`.

    Attributes:
      ids: int32 `[n]`, the documents one after another, each with BOS and EOS.
      starts: int64 `[documents + 1]`, where each begins, and the end.
    """

    ids: np.ndarray
    starts: np.ndarray

    @property
    def num_documents(self) -> int:
        """Number of documents."""
        return len(self.starts) - 1

    def document_span(self, document: int) -> tuple[int, int]:
        """Return where a document begins and ends."""
        return int(self.starts[document]), int(self.starts[document + 1])

    def read(self, start: int, length: int) -> np.ndarray:
        """Return a copy of `length` ids."""
        return self.ids[start : start + length].copy()


@functools.lru_cache(maxsize=4)
def read_texts(path: str, tokenizer: Tokenizer, text_field: str = "text") -> Texts:
    """Tokenize the documents of text files (`data.source=files`) for an evaluation.

    Raises:
      ValueError: if there are none, or one is damaged.
    """
    source = source_class("files")(path=path, text_field=text_field, ends=0)
    documents = []
    note_unread(source)
    for document in source.read():
        if document.problem:
            where = f"{source.files[document.file].path}:{document.line}"
            fields = f"texts are read from data.text_field={text_field}, as in training"
            raise ValueError(f"{where}: {document.problem}; correct the file ({fields})")
        ids = tokenizer.encode(document.text)
        documents.append(np.array([tokenizer.bos_id, *ids, *tokenizer.end], np.int32))
    if not documents:
        raise ValueError(f"{path}: no document; name other text")
    return Texts(np.concatenate(documents), np.cumsum([0, *map(len, documents)]))


def validation(context: TaskContext, *, task: str, path: str | None = None) -> TokenStore | Texts:
    """Open the run's held-out documents, tokenized: its copy, or else the prepared text.

    Args:
      path: text files to read instead.

    Raises:
      ValueError: if the run has no text, its text is missing on this machine, or its copy is
        damaged; as `read_texts`.
    """
    if path is not None:
        return read_texts(path, context.tokenizer, context.data.text_field)
    if not context.data.has_text:
        raise ValueError(f"{task} needs text, and data.source={context.data.source} has none")
    known = context.held_out_fingerprints
    if context.held_out is None or not context.held_out.exists():
        store = TokenStore(prepared(context, task=task) / "validation")
        if known and store.fingerprint not in known:
            raise MissingTextError(
                f"{task} needs the held-out text of the training, and data.path="
                f"{context.data.path} has changed since; restore its content, or name text for the "
                "task: perplexity(path='FILE')"
            )
        return store
    try:
        store = TokenStore(context.held_out)
        for damage in find_damages(context.held_out / "store.json"):
            raise DamagedError(damage)
        if not known:
            what = "no fingerprint of its text in config.json (an older run); another text"
            print_note(None, f"{context.held_out}: {what} cannot be noticed")
        elif store.fingerprint not in known:
            raise DamagedError(f"{context.held_out} holds another text than the run's")
    except DamagedError as error:
        raise ValueError(
            f"{task} needs held-out text: {error.what}; delete {context.held_out}, and it is made "
            "again of the text the run was trained on"
        ) from None
    return store


def read_in_order(
    context: TaskContext, *, task: str, path: str | None = None
) -> tuple[TokenStore | Texts, Iterator[tuple[int, int]], np.random.Generator]:
    """Return `validation`, where its texts are, in an order of the seed, and the generator.

    A text is from a document's first id after BOS to the last one before EOS, which is not scored.
    """
    store = validation(context, task=task, path=path)
    random = np.random.Generator(np.random.Philox(context.seed))
    order, num_ends = random.permutation(store.num_documents).tolist(), len(context.tokenizer.end)
    spans = map(store.document_span, order)
    return store, ((start + 1, end - num_ends) for start, end in spans), random


class Crop(NamedTuple):
    """Part of a text.

    Attributes:
      tokens: int32 `[length + 1]`, BOS in front.
      sizes: `sizes` of `tokens`.
    """

    tokens: np.ndarray
    sizes: np.ndarray


def crops(
    context: TaskContext,
    numbers: range,
    *,
    task: str,
    length: int | None = None,
    max_crops: int = 1,
    path: str | None = None,
) -> Iterator[tuple[int, list[Crop]]]:
    """Yield crops from random positions of each of `numbers` held-out documents.

    Args:
      length: ids of a crop; None: the length of the context.
      max_crops: crops of a document, without overlap, if it is long enough.
      path: text other than the run's, as of `validation`.

    Yields:
      Numbers and crops, documents in an order that `context.seed` decides, the too short ones left
      out; fewer if there are no more.

    Raises:
      ValueError: as `validation`; if every document is shorter, naming the longest.
    """
    length = length or context.length
    store, spans, random = read_in_order(context, task=task, path=path)
    number, longest = 0, 0
    for start, end in spans:
        room = end - start
        longest = max(longest, room)
        if room < length:
            continue
        if number == numbers.stop:
            return
        count = min(max_crops, room // length)
        gaps = np.sort(random.integers(room - count * length, size=count, endpoint=True))
        if number in numbers:
            places = start + gaps + length * np.arange(count)
            yield number, [_crop(context, store, position, length) for position in places.tolist()]
        number += 1
    if not number:
        raise too_short(task, length, longest)


def _crop(context: TaskContext, store: TokenStore | Texts, start: int, length: int) -> Crop:
    # Include the id before the crop, which shows whether the crop starts inside a word.
    ids = store.read(start - 1, length + 1)
    sizes_N2 = sizes(context.tokenizer, ids)
    ids[0] = context.tokenizer.bos_id
    return Crop(ids, sizes_N2)


def share(
    context: TaskContext, tokens: int, *, task: str, path: str | None = None
) -> tuple[int, int]:
    """Return numbers of documents and of crops of each at most, with `tokens` in all.

    There are as few crops per document as possible, then as few documents; all documents if they
    have fewer tokens.
    """
    _, spans, _ = read_in_order(context, task=task, path=path)
    wanted = -(-tokens // context.length)
    rooms = np.array([(end - start) // context.length for start, end in spans], int)
    rooms = rooms[rooms > 0]
    max_crops = next((n for n in range(1, wanted) if np.minimum(rooms, n).sum() >= wanted), wanted)
    return min(len(rooms), wanted), max_crops


@dataclasses.dataclass(frozen=True, kw_only=True)
class CropTask(Task):
    """A task that makes each document from a `Crop`.

    Attributes:
      path: JSON lines, Parquet or .txt files, or their folder; None: the run's held-out text.
    """

    path: str | None = None

    def sources(self, context: TaskContext, numbers: range) -> Iterator[tuple[int, Crop]]:
        """Yield one crop for each number."""
        cropped = crops(context, numbers, task=name_of(type(self)), path=self.path)
        return ((number, crop) for number, (crop,) in cropped)


class WindowTask(Task):
    """A task whose documents are the windows of a text, with fields `stride` and `tokens`."""

    kind = "likelihood"

    stride: int
    tokens: int | None

    def check(self, context: TaskContext) -> None:
        """Reject windows that skip tokens or never move."""
        task, length, stride, tokens = name_of(type(self)), context.length, self.stride, self.tokens
        if stride > length:
            raise ValueError(
                f"{task} with stride={stride} skips tokens between windows of length={length}; "
                f"write {task}(stride={max(1, length // 2)}) or less, or ask for --lengths {stride}"
            )
        if tokens is not None and tokens < length:
            raise ValueError(
                f"{task} with tokens={tokens} does not fill a window of length={length}; write "
                f"{task}(tokens={length}) or more, or ask for --lengths {tokens} or less"
            )

    def document(self, context: TaskContext, sample: Sample) -> list[Document]:
        """Make the windows of a text."""
        sizes_N2 = sizes(context.tokenizer, sample.source)
        return windows(sample.source, sizes_N2, context.length, self.stride)


def too_short(
    task: str, length: int, longest: int, *, what: str = "document of validation"
) -> ValueError:
    """Return the error for documents that all have fewer than `length` tokens."""
    if longest < 2:
        return ValueError(f"{task} needs text, and there is no {what}")
    return ValueError(
        f"{task} at length {length} needs more text in one piece: the longest {what} has "
        f"{longest} tokens; ask for --lengths {longest} or less"
    )


def sizes(tokenizer: Tokenizer, ids: np.ndarray) -> np.ndarray:
    """Return the bytes of text of each id, and the words that start in it.

    Words are separated by ASCII whitespace, as by `bytes.split`. Sizes are exact if decoding
    restores the text: text unknown to a tokenizer without byte pieces counts no bytes.

    Args:
      ids: `[n]`; the first id counts as the start of a word.

    Returns:
      int32 `[n, 2]`; the sums over a document are `len(text)` and `len(text.split())` of its bytes,
      however it is cut into answers.
    """
    pieces_N4 = _pieces(tokenizer)[ids]
    for first in tokenizer.spelled_spaces(ids):
        pieces_N4[first : first + 3] = (1, 0, 0, 0), (0, 0, 0, 0), (0, 0, 0, 0)
    num_bytes, num_words, begins_inside, ends_inside = pieces_N4.T
    sizes_N2 = np.stack([num_bytes, num_words], axis=1)
    sizes_N2[1:, 1] -= begins_inside[1:] & ends_inside[:-1]  # one word over two ids
    if tokenizer.adds_space:
        sizes_N2[1:, 0] -= (ids[:-1] == tokenizer.bos_id) & (num_bytes[1:] > 0)
    return sizes_N2


@functools.lru_cache(maxsize=8)
def _pieces(tokenizer: Tokenizer) -> np.ndarray:
    """Return bytes, words, and whether the first and last byte are in a word, int32 `[V, 4]`."""
    pieces = [
        (len(piece), len(piece.split()), bool(piece[:1].strip()), bool(piece[-1:].strip()))
        for piece in tokenizer.piece_bytes
    ]
    return np.array(pieces, np.int32)


def ending(ids: np.ndarray, sizes_N2: np.ndarray, part: slice, count: int, query: int) -> Document:
    """Make a document of BOS and a part of a text whose last `count` ids are one answer.

    The distance is the context: tokens before the answer, without BOS.

    Args:
      ids: BOS and the text.
      sizes_N2: `sizes` of `ids`.
    """
    tokens, part_sizes = (np.concatenate([array[:1], array[part]]) for array in (ids, sizes_N2))
    context = len(tokens) - 1 - count
    document = Document.from_lists(tokens, [[context + 1, count, context]], first_query=query)
    return sized(document, part_sizes)


def sized(document: Document, sizes_N2: np.ndarray) -> Document:
    """Add `num_bytes` and `num_words` of a document's answers, from `sizes` of its tokens."""
    before = np.concatenate([np.zeros((1, 2), np.int32), np.cumsum(sizes_N2, axis=0)])
    first, count = document.answers[:, 0], document.answers[:, 1]
    totals = (before[first + count] - before[first]).astype(np.int32)
    return dataclasses.replace(document, num_bytes=totals[:, 0], num_words=totals[:, 1])


def windows(ids: np.ndarray, sizes_N2: np.ndarray, length: int, stride: int) -> list[Document]:
    """Cut a text into windows of `length` ids; each id except the first is scored exactly once.

    Windows begin every `stride` tokens, and the last may be short. This is the standard procedure
    (Hugging Face's guide, YaRN): a token's context does not depend on the end of the text.

    Args:
      ids: BOS and a text. The model reads BOS and a window's ids except the last.
      sizes_N2: `sizes` of `ids`.
    """
    num_tokens = len(ids) - 1
    documents, scored = [], 0
    for query, begin in enumerate(range(0, num_tokens, stride)):
        end = min(begin + length, num_tokens)
        window = slice(begin + 1, end + 1)
        documents.append(ending(ids, sizes_N2, window, end - scored, query))
        scored = end
        if end == num_tokens:
            break
    return documents
