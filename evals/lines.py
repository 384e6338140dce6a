"""LongEval's lines (LongChat, 2023) as a completion: the number of a line named before.

The main metric of Men et al. (arXiv 2405.14591), five digits, without a question in words: a
base model completes the line."""

import dataclasses
import functools

from data import retrieval
from data.tokenizer import Tokenizer
from evals.task import Document, Task
from experiment.config import ExperimentConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lines(Task):
    """See the module."""

    kind = "retrieval"

    def documents(
        self,
        config: ExperimentConfig,
        tokenizer: Tokenizer,
        length: int,
        numbers: range,
        distances: tuple[int, int] | None = None,
    ) -> list[Document]:
        """See `Task.documents`."""
        make = functools.partial(
            retrieval.make, "lines", tokenizer, length, seed=config.evals.seed, split="validation"
        )
        return [Document.of(make(index=number), number) for number in numbers]

    def chance(self, tokenizer: Tokenizer) -> float:
        """See `Task.chance`."""
        return retrieval.chance("lines", tokenizer)
