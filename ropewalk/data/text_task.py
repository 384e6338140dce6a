"""Tasks whose documents are text, which some tokenizers must encode in one piece.

Documents are put together from parts of known sizes, each encoded by itself. Those are the ids of
the text only if no piece holds text of two parts. Tokenizers with pieces of several digits have
other such pieces too: GPT-2's has " 48", Llama 3's has ".\n". For them, a document is planned in
parts and its text is encoded again in one piece, as its user would do. Tokenizers that split digits
keep the parts, so that all rows of a run agree.
"""

import codecs
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ropewalk.data.task import Document, Task, TaskContext
from ropewalk.data.tokenizer import Tokenizer

_PLANS = 8  # most plans of a document
_CLOSE = 64  # a document that lacks at most a 64th of its plan's ids is not planned again


class TextTask(Task):
    """A task whose documents are text."""

    def documents(self, context: TaskContext, numbers: range) -> list[Document]:
        """Return the documents of these numbers.

        Raises:
          ValueError: as `data.task.Task.documents`, or if a text has too many ids.
        """
        documents = super().documents(context, numbers)
        longest = max((len(document.tokens) for document in documents), default=0)
        if longest > context.length + 1:
            raise ValueError(
                f"{self.expression}: documents have up to {longest} tokens with this tokenizer and "
                f"do not fit length={context.length}; ask for --lengths {longest - 1} or more"
            )
        return documents

    def rows(
        self, context: TaskContext, number: int, source: Any, length: int | None = None
    ) -> Sequence[Document]:
        """Return the rows of one sample; text in one piece is planned until it fills the length."""
        if context.tokenizer.splits_digits:
            return super().rows(context, number, source, length)
        length, best = context.length, []
        for _ in range(_PLANS):
            plan = super().rows(context, number, source, length)
            rows = [encode_whole(context.tokenizer, row) for row in plan]
            planned, size = (max(len(row.tokens) for row in x) for x in (plan, rows))
            excess = size - 1 - context.length
            is_first, best = not best, best if excess > 0 and best else rows
            if excess > 0:
                length -= excess
            elif is_first and planned - size > length // _CLOSE:
                length += planned - size
            else:
                break
            if length < self.least_length(context):
                break
        return best


def encode_whole(tokenizer: Tokenizer, document: Document) -> Document:
    """Encode the text of a document in one piece, and find its answers by their bytes.

    Ids without text, such as BOS and the turns of a chat, stay. Parts of characters, where a text
    was cut, are left out. An answer is all ids that hold a byte of it; `Document.merged` says
    whether they hold others too.

    Raises:
      ValueError: if the tokenizer changes the text.
    """
    pieces, tokens = tokenizer.piece_bytes, []
    for has_text, group in itertools.groupby(document.tokens.tolist(), lambda i: pieces[i] != b""):
        part = list(group)
        if has_text:
            text = b"".join(map(pieces.__getitem__, part)).decode(errors="ignore")
            part = tokenizer.encode(text, inside=True)
        tokens += part
    ends = np.cumsum(tokenizer.piece_lengths[tokens])

    start, count, distance = document.answers.T
    planned = list(map(pieces.__getitem__, document.tokens.tolist()))
    marks = np.stack([start, start + count, start - 1 - distance])
    decode = codecs.getincrementaldecoder("utf-8")("ignore").decode
    places, size = {}, 0
    for last, mark in itertools.pairwise([0, *sorted({*marks.flat}), len(planned)]):
        size += len(decode(b"".join(planned[last:mark])).encode())
        places[mark] = size
    if ends[-1] != size:
        raise ValueError(
            "this tokenizer changes the text (its normalizer), so answers are not found"
        )
    begin, end, source = np.vectorize(places.get, otypes=[int])(marks)

    first, last, source = (np.searchsorted(ends, x, side="right") for x in (begin, end - 1, source))
    merged = (begin > ends[first] - tokenizer.piece_lengths[tokens][first]) | (end < ends[last])
    answers = np.stack([first, last - first + 1, first - 1 - source], axis=1)
    return Document.from_lists(tokens, answers, first_query=document.first_query, merged=merged)
