"""Step 1: the loss of the first training rows before any update.

What a schedule and a context length cost the checkpoint at once, and so a cheap way to choose the
base of continued training: Gradient compares bases by the perplexity of the first batch
(gradient.ai, "Scaling rotational embeddings for long-context language models"). Rows are those
that training on this data at this length would see first, packed as it packs them, so the mean is
the loss it would report. That a lower first loss means a longer effective context is not said.
"""

import dataclasses

import numpy as np

from data.mixture import mixture
from data.packing import Row
from data.store import TokenStore
from data.tokenizer import Tokenizer
from evals import text
from evals.estimate import summaries
from evals.estimate.summaries import MeanWithError
from evals.rows import Rows
from evals.task import Document, Task
from experiment.config import ExperimentConfig

CHUNK = 256  # tokens of an answer at most


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step1(Task):
    """See the module. Document number r is row r of training (`data.pipeline.make_batches`).

    An answer is a chunk of up to 256 neighbouring targets that the loss counts; its `distance` is
    the tokens of its own document before it in the row.
    """

    kind = "likelihood"

    def documents(
        self,
        config: ExperimentConfig,
        tokenizer: Tokenizer,
        length: int,
        numbers: range,
        distances: tuple[int, int] | None = None,
    ) -> list[Document]:
        """See `Task.documents`."""
        data = dataclasses.replace(config.data, context_length=length)
        prepared = text.prepared(config, tokenizer, task="step1")
        store = None if data.source == "retrieval" else TokenStore(prepared / "train")
        if store and store.num_tokens <= length:
            raise text.too_short("step1", length, store.num_tokens - 1, what="stretch of training")
        rows = mixture(data, store, tokenizer)
        found: list = [rows[number] for number in numbers]
        return [
            document(tokenizer, row, number) for row, number in zip(found, numbers, strict=True)
        ]

    def chance(self, tokenizer: Tokenizer) -> float:
        """See `Task.chance`."""
        return 0.0


def document(tokenizer: Tokenizer, row: Row, number: int) -> Document:
    """A packed row with answers where the loss counts."""
    tokens = np.append(row["tokens"], row["targets"][-1]).astype(np.int32)
    whole = Document(
        tokens=tokens,
        answers=chunks(row["loss_mask"], row["positions"], CHUNK),
        number=number,
        segment_ids=row["segment_ids"],
    )
    return text.sized(whole, text.sizes(tokenizer, tokens))


def chunks(loss_mask_T: np.ndarray, positions_T: np.ndarray, size: int) -> np.ndarray:
    """Answers of up to `size` ids, int32 `[Q, 3]`, that hold every target counted, once."""
    edges = np.flatnonzero(np.diff(loss_mask_T > 0, prepend=False, append=False)).reshape(-1, 2)
    found = [
        (begin + 1, min(size, end - begin), positions_T[begin] + 1)
        for start, end in edges.tolist()
        for begin in range(start, end, size)
    ]
    return np.array(found, np.int32).reshape(-1, 3)


def compare(rows: Rows, other: Rows) -> MeanWithError:
    """First loss under one schedule less that under another, nats a token, paired by chunk.

    The error takes chunks for independent; rows of training number too few to be the unit.
    """
    return summaries.difference(rows, other, unit=("document", "query"))
