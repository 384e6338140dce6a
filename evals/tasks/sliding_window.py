"""Sliding window: perplexity of whole documents that are longer than the context.

    BOS[a b c d e f g h]         length 8, stride 3: every window starts with BOS, and what is
        BOS d e f g h[i j k]     new in it is scored [in brackets]. A token sees at least
            BOS g h i j k[l m]   length - stride tokens, but for those of the first window.

Every token of the text counts once (`summaries.mean_nll`). The mean over windows, which YaRN's
evaluation and an older guide of Hugging Face take in its stead, has a name of its own here.
"""

import dataclasses

import numpy as np

from data.tokenizer import Tokenizer
from evals import text
from evals.rows import Rows
from evals.task import Document, Task
from experiment.config import ExperimentConfig


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

    stride: int = 256
    tokens: int = 16384
    truncate: bool = False

    def __post_init__(self):
        check_positive(self, "stride", "tokens")

    def documents(
        self,
        config: ExperimentConfig,
        tokenizer: Tokenizer,
        length: int,
        numbers: range,
        distances: tuple[int, int] | None = None,
    ) -> list[Document]:
        """See `Task.documents`."""
        if not self.truncate:
            check_window("sliding_window", length, self.stride, self.tokens)
        store = text.validation(config, tokenizer, task="sliding_window")
        indices, _ = text.order(store, seed=config.evals.seed)
        # Their text, without BOS and EOS.
        spans = [(start + 1, end - 1) for start, end in map(store.document_span, indices.tolist())]
        longest = max((end - start for start, end in spans), default=0)
        if longest < length:
            raise text.too_short("sliding_window", length, longest)
        limit = length if self.truncate else self.tokens
        found = []
        for number in numbers[: len(spans)]:
            start, end = spans[number]
            ids = store.read(start - 1, 1 + min(end - start, limit))
            found += windows(ids, text.sizes(tokenizer, ids), number, length, self.stride)
        return found

    def chance(self, tokenizer: Tokenizer) -> float:
        """See `Task.chance`."""
        return 0.0


def check_positive(task: Task, *names: str) -> None:
    """Refuses numbers of tokens below 1."""
    for name in names:
        value = getattr(task, name)
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")


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


def windows(
    ids: np.ndarray, sizes_N2: np.ndarray, number: int, length: int, stride: int
) -> list[Document]:
    """One text's windows; each id but the first is scored exactly once.

    Windows begin every `stride` tokens, so the last may be short: the standard procedure (Hugging
    Face's guide, YaRN), in which a token's context does not depend on where the text ends.

    Args:
      ids: BOS and a text.
      sizes_N2: `text.sizes` of them.
      number: of the text.
      length: ids a window predicts: the model reads BOS and all of them but the last.
    """
    num_tokens = len(ids) - 1
    found, scored = [], 0
    for query, begin in enumerate(range(0, num_tokens, stride)):
        end, context = min(begin + length, num_tokens), scored - begin
        document = Document(
            tokens=np.append(ids[:1], ids[begin + 1 : end + 1]).astype(np.int32),
            answers=np.array([[context + 1, end - scored, context]], np.int32),
            number=number,
            first_query=query,
        )
        window_sizes = np.concatenate([sizes_N2[:1], sizes_N2[begin + 1 : end + 1]])
        found.append(text.sized(document, window_sizes))
        scored = end
        if end == num_tokens:
            break
    return found


def window_mean_nll(rows: Rows) -> float:
    """YaRN's own number (its eval/perplexity.py): the mean over windows of each one's mean nats.

    The first window, `length` tokens with little context, weighs as much as every later one of
    `stride` tokens, and so does a last one of a few tokens.
    """
    return float(np.mean(rows["nll"]))
