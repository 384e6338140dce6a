"""Copying at a lag: one random text again and again; the distance is the text's length.

The repeated text of Olsson et al. (2022). Most ids are answers, but a document has one distance."""

import dataclasses
import functools

from data import retrieval
from data.tokenizer import Tokenizer
from evals.task import Document, Task
from experiment.config import ExperimentConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lagcopy(Task):
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
            retrieval.make, "lagcopy", tokenizer, length, seed=config.evals.seed, split="validation"
        )
        return [Document.of(make(index=number), number) for number in numbers]

    def chance(self, tokenizer: Tokenizer) -> float:
        """See `Task.chance`."""
        return retrieval.chance("lagcopy", tokenizer)
