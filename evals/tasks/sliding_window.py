"""Sliding window: perplexity of whole documents that are longer than the context.

    BOS[a b c d e f g h]         length 8, stride 3: every window starts with BOS, and what is
        BOS d e f g h[i j k]     new in it is scored [in brackets]. A token sees at least
            BOS g h i j k[l m]   length - stride tokens, but for those of the first window.

Every token of the text counts once (`summaries.mean_nll`). The mean over windows, which YaRN's
evaluation and an older guide of Hugging Face take in its stead, has a name of its own here.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np

from data.task import Asked, Document, Draw, Results, Task
from evals import text
from settings.checks import Count


@dataclasses.dataclass(frozen=True, kw_only=True)
class SlidingWindow(Task):
    """See the module. One answer a window; its `distance` is the context of its first token.

    Documents shorter than a window are scored whole, in one. EOS is not scored.

    Attributes:
      stride: tokens from one window to the next.
      tokens: of each document, from its start, that are scored; fewer where it ends.
      truncate: score the first window only, as YaRN's --truncate does.
    """

    kind = "likelihood"

    stride: Count = 256
    tokens: Count = 16384
    truncate: bool = False

    def check(self, asked: Asked) -> None:
        """See `Task.check`."""
        if not self.truncate:
            check_window("sliding_window", asked.length, self.stride, self.tokens)

    def sources(self, asked: Asked, numbers: range) -> Iterator[tuple[int, np.ndarray]]:
        """The start of each text, behind BOS."""
        store = text.validation(asked, task="sliding_window")
        indices, _ = text.order(store, seed=asked.seed)
        # Their text, without BOS and EOS.
        spans = [(start + 1, end - 1) for start, end in map(store.document_span, indices.tolist())]
        longest = max((end - start for start, end in spans), default=0)
        if longest < asked.length:
            raise text.too_short("sliding_window", asked.length, longest)
        limit = asked.length if self.truncate else self.tokens
        for number in range(numbers.start, min(numbers.stop, len(spans))):
            start, end = spans[number]
            yield number, store.read(start - 1, 1 + min(end - start, limit))

    def document(self, asked: Asked, draw: Draw) -> list[Document]:
        """Its windows."""
        sizes_N2 = text.sizes(asked.tokenizer, draw.source)
        return windows(draw.source, sizes_N2, asked.length, self.stride)

    def columns(self, results: Results, trained: Results | None) -> dict[str, float]:
        """YaRN's own number (its eval/perplexity.py): the mean over windows of their mean nats.

        The first window, `length` tokens with little context, weighs as much as every later one of
        `stride` tokens, and so does a last one of a few tokens.
        """
        return {"window_mean_nll": float(np.mean(results["nll"]))}


def check_window(task: str, length: int, stride: int, tokens: int | None) -> None:
    """Refuses windows that would leave tokens out or never slide."""
    if stride > length:
        raise ValueError(
            f"{task} with stride={stride} leaves tokens out between windows of length={length}; "
            f"write {task}(stride={max(1, length // 2)}) or less, or ask for --lengths {stride}"
        )
    if tokens is not None and tokens < length:
        raise ValueError(
            f"{task} with tokens={tokens} does not fill a window of length={length}; write "
            f"{task}(tokens={length}) or more, or ask for --lengths {tokens} or less"
        )


def windows(ids: np.ndarray, sizes_N2: np.ndarray, length: int, stride: int) -> list[Document]:
    """One text's windows, of `length` ids; each id but the first is scored exactly once.

    Windows begin every `stride` tokens, so the last may be short: the standard procedure (Hugging
    Face's guide, YaRN), in which a token's context does not depend on where the text ends.

    Args:
      ids: BOS and a text. The model reads BOS and all of a window's ids but the last.
      sizes_N2: `text.sizes` of them.
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
