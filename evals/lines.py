"""LongEval's lines (LongChat, 2023) as a completion: the number of a line named before.

The main metric of Men et al. (arXiv 2405.14591), five digits, without a question in words: a
base model completes the line."""

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
            "lines", tokenizer, length, seed=config.evals.seed, split="validation", index=index
        )
        for index in range(count)
    ]


def chance(tokenizer: Tokenizer) -> float:
    """See `evals`."""
    return retrieval.chance("lines", tokenizer)
