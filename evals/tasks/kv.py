"""Key-value recall: every key occurs twice, and its value is asked the second time.

Multi-query associative recall (Arora et al., arXiv 2312.04927) at distances that are chosen."""

import dataclasses
import functools

from data import retrieval
from data.tokenizer import Tokenizer
from evals.task import Document, Task
from experiment.config import ExperimentConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kv(Task):
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
            retrieval.make, "kv", tokenizer, length, seed=config.evals.seed, split="validation"
        )
        return [Document.of(make(index=number, distances=distances), number) for number in numbers]

    def chance(self, tokenizer: Tokenizer) -> float:
        """See `Task.chance`."""
        return retrieval.chance("kv", tokenizer)
