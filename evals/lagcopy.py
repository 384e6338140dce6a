"""Copying at a lag: one random text again and again; the distance is the text's length.

The repeated text of Olsson et al. (2022). Most ids are answers, but a document has one distance."""

from data import retrieval
from data.retrieval import RetrievalDocument
from data.tokenizer import Tokenizer
from experiment.config import ExperimentConfig


def documents(
    config: ExperimentConfig, tokenizer: Tokenizer, length: int, count: int
) -> list[RetrievalDocument]:
    """See `evals`."""
    return [
        retrieval.make(
            "lagcopy", tokenizer, length, seed=config.evals.seed, split="validation", index=index
        )
        for index in range(count)
    ]


def chance(tokenizer: Tokenizer) -> float:
    """See `evals`."""
    return retrieval.chance("lagcopy", tokenizer)
