"""Step 1: the loss of the first training rows before any update.

The immediate cost of a variant and a context length is a cheap criterion for the base of continued
training: Gradient compares bases by the perplexity of the first batch (gradient.ai, "Scaling
rotational embeddings for long-context language models"). Rows are the first packed rows of training
on this data at this length, so the mean is the loss that training would report. A lower first loss
does not imply a longer effective context.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from ropewalk.data.task import Document, Sample, Task, TaskContext
from ropewalk.evals import text

CHUNK = 256  # tokens of an answer at most
TOKENS = 2**18  # of training rows by default: losses paired by token tell 0.001 nats apart


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step1(Task):
    """First loss; document number r is row r of training (`data.pipeline.make_batches`).

    An answer is a chunk of up to 256 neighboring targets of the loss. Its `distance` is the number
    of tokens of its document before it in the row.
    """

    kind = "likelihood"
    of_training = True

    def check(self, context: TaskContext) -> None:
        """Accept any length, because rows are packed."""

    def num_documents(self, context: TaskContext, documents: int) -> int:
        """Return the number of rows with `TOKENS` tokens in all, whatever the config says."""
        return -(-TOKENS // context.length)

    def sources(
        self, context: TaskContext, numbers: range
    ) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
        """Yield the first rows of training."""
        # They bring grain and jax, which --help does without.
        from ropewalk.data.domains import open_domains
        from ropewalk.data.mixture import mixture

        data = dataclasses.replace(context.data, context_length=context.length)
        prepared = text.prepared(context, task="step1")
        texts = open_domains(data, prepared) if data.has_text else []
        longest = min((part.store.num_tokens - 1 for part in texts), default=context.length)
        if longest < context.length:
            raise text.too_short("step1", context.length, longest, what="stretch of training")
        rows = mixture(data, texts, context.tokenizer)
        for number in numbers:
            row: Any = rows[number]
            yield number, row

    def document(self, context: TaskContext, sample: Sample) -> Document:
        """Make a packed row with answers at the targets of the loss."""
        row = sample.source
        tokens = np.append(row["tokens"], row["targets"][-1])
        answers = chunks(row["loss_mask"], row["positions"], CHUNK)
        document = Document.from_lists(tokens, answers, segment_ids=row["segment_ids"])
        return text.sized(document, text.sizes(context.tokenizer, tokens))


def chunks(loss_mask_T: np.ndarray, positions_T: np.ndarray, size: int) -> np.ndarray:
    """Cut the targets of the loss into answers of up to `size` ids, int32 `[Q, 3]`."""
    edges = np.flatnonzero(np.diff(loss_mask_T > 0, prepend=False, append=False)).reshape(-1, 2)
    answers = [
        (begin + 1, min(size, end - begin), positions_T[begin] + 1)
        for start, end in edges.tolist()
        for begin in range(start, end, size)
    ]
    return np.array(answers, np.int32).reshape(-1, 3)
