"""Perplexity by position: what more context is worth to the next token of real text.

One crop a document, from a random place in it, so that a position in context is not a position in
the book; no packing, BOS in front. An "answer" is all tokens whose position lies in one
half-octave: its nll is their mean, its distance the bin's geometric centre. Expect little of it:
perplexity hardly moves with the base where retrieval fails (Men et al., arXiv 2405.14591).
"""

import dataclasses

import numpy as np

from data.tokenizer import Tokenizer
from evals import text
from evals.estimate.bins import BIN_STARTS
from evals.task import Document, Task
from experiment.config import ExperimentConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Perplexity(Task):
    """See the module."""

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
        crops = text.crops(config, tokenizer, length, numbers, task="perplexity")
        return [text.sized(document(tokens, number), sizes) for number, tokens, sizes in crops]

    def chance(self, tokenizer: Tokenizer) -> float:
        """See `Task.chance`."""
        return 0.0


def document(tokens: np.ndarray, number: int) -> Document:
    """BOS and a crop, with one answer for each half-octave of positions."""
    edges = np.append([start for start in BIN_STARTS if start < len(tokens)], len(tokens))
    low, high = edges[:-1], edges[1:]
    centre = np.rint(np.sqrt(low * (high - 1)))
    answers = np.stack([low, high - low, centre], axis=1)
    return Document(tokens=tokens.astype(np.int32), answers=answers.astype(np.int32), number=number)
