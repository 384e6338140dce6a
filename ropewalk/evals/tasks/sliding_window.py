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

from ropewalk.data.task import TaskContext
from ropewalk.evals import text
from ropewalk.utils.checks import Count


@dataclasses.dataclass(frozen=True, kw_only=True)
class SlidingWindow(text.WindowTask):
    """Perplexity by sliding windows; see the module.

    Each window is one answer, whose `distance` is the context of its first token. Documents shorter
    than a window are one window. EOS is not scored.

    Attributes:
      stride: tokens from one window to the next.
      tokens: tokens to score at the start of each document, or all of a shorter document.
      path: JSON lines, Parquet or .txt files, or their folder; None: the run's held-out text.
    """

    stride: Count = 256
    tokens: Count = 16384
    path: str | None = None

    def sources(self, context: TaskContext, numbers: range) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the start of each text, after BOS."""
        store, ordered, _ = text.read_in_order(context, task="sliding_window", path=self.path)
        spans = list(ordered)
        longest = max((end - start for start, end in spans), default=0)
        if longest < context.length:
            raise text.too_short("sliding_window", context.length, longest)
        for number in range(numbers.start, min(numbers.stop, len(spans))):
            start, end = spans[number]
            yield number, store.read(start - 1, 1 + min(end - start, self.tokens))
