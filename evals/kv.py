"""Key-value recall: every key occurs twice, and its value is asked the second time.

Multi-query associative recall (Arora et al., arXiv 2312.04927) at distances that are chosen."""

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
            "kv", tokenizer, length, seed=config.evals.seed, split="validation", index=index
        )
        for index in range(count)
    ]


def chance(tokenizer: Tokenizer) -> float:
    """See `evals`."""
    return retrieval.chance("kv", tokenizer)
