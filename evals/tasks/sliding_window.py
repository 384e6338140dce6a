"""Sliding window: perplexity of whole documents that are longer than the context.

    BOS[a b c d e f g h]         length 8, stride 3: every window starts with BOS, and its new
        BOS d e f g h[i j k]     tokens are scored [in brackets]. The context of a token is at
            BOS g h i j k[l m]   least length - stride tokens, except in the first window.

Every token of the text counts once (`summaries.mean_nll`). YaRN's evaluation and an older guide of
Hugging Face use the mean over windows instead, which is the column `window_mean_nll` of pages.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np

from ropewalk.data.task import Document, Sample, Task, TaskContext
from ropewalk.evals import text
from ropewalk.utils.checks import Count


@dataclasses.dataclass(frozen=True, kw_only=True)
class SlidingWindow(Task):
    """Perplexity by sliding windows; see the module.

    Each window is one answer, whose `distance` is the context of its first token. Documents shorter
    than a window are one window. EOS is not scored.

    Attributes:
      stride: tokens from one window to the next.
      tokens: tokens to score at the start of each document, or all of a shorter document.
      truncate: score the first window only, as YaRN's --truncate does.
      path: JSON lines, Parquet or .txt files, or their folder; None: the run's held-out text.
    """

    kind = "likelihood"

    stride: Count = 256
    tokens: Count = 16384
    truncate: bool = False
    path: str | None = None

    def check(self, context: TaskContext) -> None:
        """Reject windows that skip tokens or never move."""
        if not self.truncate:
            check_window("sliding_window", context.length, self.stride, self.tokens)

    def sources(self, context: TaskContext, numbers: range) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the start of each text, after BOS."""
        store = text.validation(context, task="sliding_window", path=self.path)
        indices, _ = text.order(store, seed=context.seed)
        # Spans of the text, without BOS and EOS.
        spans = [(start + 1, end - 1) for start, end in map(store.document_span, indices.tolist())]
        longest = max((end - start for start, end in spans), default=0)
        if longest < context.length:
            raise text.too_short("sliding_window", context.length, longest)
        limit = context.length if self.truncate else self.tokens
        for number in range(numbers.start, min(numbers.stop, len(spans))):
            start, end = spans[number]
            yield number, store.read(start - 1, 1 + min(end - start, limit))

    def document(self, context: TaskContext, sample: Sample) -> list[Document]:
        """Make the windows of a text."""
        sizes_N2 = text.sizes(context.tokenizer, sample.source)
        return windows(sample.source, sizes_N2, context.length, self.stride)


def check_window(task: str, length: int, stride: int, tokens: int | None) -> None:
    """Raise ValueError if windows would skip tokens or never move."""
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


def windows(ids: np.ndarray, sizes_N2: np.ndarray, length: int, stride: int) -> list[Document]:
    """Cut a text into windows of `length` ids; each id except the first is scored exactly once.

    Windows begin every `stride` tokens, and the last may be short. This is the standard procedure
    (Hugging Face's guide, YaRN): a token's context does not depend on the end of the text.

    Args:
      ids: BOS and a text. The model reads BOS and a window's ids except the last.
      sizes_N2: `text.sizes` of `ids`.
    """
    num_tokens = len(ids) - 1
    documents, scored = [], 0
    for query, begin in enumerate(range(0, num_tokens, stride)):
        end = min(begin + length, num_tokens)
        window = slice(begin + 1, end + 1)
        documents.append(text.ending(ids, sizes_N2, window, end - scored, query))
        scored = end
        if end == num_tokens:
            break
    return documents
