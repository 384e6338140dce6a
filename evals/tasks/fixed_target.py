"""Fixed target: what more context is worth to the same tokens.

The last `target` tokens of a text are predicted from the 32, 64, ... tokens before them, each
context its own forward pass with BOS in front, as in rerope's evaluation (github.com/bojone/
rerope). A position in context is then not a place in the text, and differences are paired. Where
perplexity stops falling at a context much shorter than what training showed, and retrieval fails
beyond, context is superficial (Men et al., arXiv 2405.14591).
"""

import dataclasses

import numpy as np

from data.tokenizer import Tokenizer
from evals import text
from evals.estimate import summaries
from evals.estimate.summaries import MeanWithError
from evals.rows import Rows, select
from evals.task import Document, Task
from experiment.config import ExperimentConfig

FIRST_CONTEXT = 32
ENOUGH = 0.95  # of what the longest context gives


@dataclasses.dataclass(frozen=True, kw_only=True)
class FixedTarget(Task):
    """See the module. A row's `distance` is the context: tokens before the target, without BOS.

    Attributes:
      target: tokens predicted, the last ones of a text.
    """

    kind = "likelihood"

    target: int = 256

    def __post_init__(self):
        if self.target < 1:
            raise ValueError(f"target must be at least 1, got {self.target}")

    def documents(
        self,
        config: ExperimentConfig,
        tokenizer: Tokenizer,
        length: int,
        numbers: range,
        distances: tuple[int, int] | None = None,
    ) -> list[Document]:
        """See `Task.documents`."""
        floor = self.target + FIRST_CONTEXT
        if length < floor:
            message = f"fixed_target(target={self.target}) does not fit length={length}"
            smaller = (
                f" or fixed_target(target={length // 2})" if length >= 2 * FIRST_CONTEXT else ""
            )
            raise ValueError(f"{message}; ask for --lengths {floor} or more{smaller}")
        crops = text.crops(config, tokenizer, length, numbers, task="fixed_target")
        chosen = contexts(length - self.target)
        return [
            document(tokens, sizes_N2, number, query, context, self.target)
            for number, tokens, sizes_N2 in crops
            for query, context in enumerate(chosen)
        ]

    def chance(self, tokenizer: Tokenizer) -> float:
        """See `Task.chance`."""
        return 0.0


def contexts(longest: int) -> list[int]:
    """32, 64, ... and `longest`, tokens."""
    octaves = range((max(0, longest - 1) // FIRST_CONTEXT).bit_length())
    return [FIRST_CONTEXT << octave for octave in octaves] + [longest]


def document(
    tokens: np.ndarray, sizes_N2: np.ndarray, number: int, query: int, context: int, target: int
) -> Document:
    """BOS and the end of a crop: the context, and the target as the one answer."""
    kept = -(context + target)
    row = Document(
        tokens=np.append(tokens[:1], tokens[kept:]).astype(np.int32),
        answers=np.array([[context + 1, target, context]], np.int32),
        number=number,
        first_query=query,
    )
    return text.sized(row, np.concatenate([sizes_N2[:1], sizes_N2[kept:]]))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ContextGain:
    """Nats a token that context is worth: G(c) = NLL(shortest context) - NLL(c).

    Attributes:
      contexts: tokens.
      gains: of each context, over the shortest; errors are paired over documents.
      length: the smallest context with 95% of the gain of the longest, tokens (L_ppl); the
        shortest where context is worth nothing.
    """

    contexts: tuple[int, ...]
    gains: tuple[MeanWithError, ...]
    length: int


def context_gain(rows: Rows) -> ContextGain:
    """The curve of one run, schedule and length.

    Raises:
      ValueError: if documents were not all asked at all contexts.
    """
    found = np.unique(rows["distance"]).tolist()
    by_context = [select(rows, distance=context) for context in found]
    for each in by_context:
        each["query"] = np.zeros_like(each["query"])  # the same question, numbered by context
    gains = tuple(summaries.difference(by_context[0], each) for each in by_context)
    enough = ENOUGH * gains[-1].mean
    length = next(c for c, gain in zip(found, gains, strict=True) if gain.mean >= enough)
    return ContextGain(contexts=tuple(found), gains=gains, length=length)
