"""Perplexity by position: the gain of the next token of real text from more context.

Documents are crops of held-out text from random positions, so that the position in context is not
the position in the text; they are not packed and begin with BOS. Many are needed, because members
differ by hundredths of a nat. An "answer" is all tokens whose position lies in one half-octave: its
nll is their mean, its distance the bin's geometric center. Perplexity hardly depends on the base
even where retrieval fails (Men et al., arXiv 2405.14591).
"""

import dataclasses
from collections.abc import Iterable

import numpy as np

from ropewalk.data.task import Document, Sample, Task, TaskContext
from ropewalk.evals import text
from ropewalk.evals.estimate.bins import BIN_STARTS
from ropewalk.utils.checks import Count


@dataclasses.dataclass(frozen=True, kw_only=True)
class Perplexity(Task):
    """Perplexity by position; see the module.

    Attributes:
      tokens: minimum number of tokens, unless the text has fewer. Each crop comes from a different
        document; if there are too few, documents give several crops that do not overlap.
      path: JSON lines, Parquet or .txt files, or their folder; None: the run's held-out text.
    """

    kind = "likelihood"

    tokens: Count = 100_000
    path: str | None = None

    def num_documents(self, context: TaskContext, documents: int) -> int:
        """Return the number of documents with `tokens` tokens, or all documents."""
        return max(documents, self._share(context)[0])

    def sources(
        self, context: TaskContext, numbers: range
    ) -> Iterable[tuple[int, list[text.Crop]]]:
        """Return the crops of each document."""
        _, max_crops = self._share(context)
        return text.crops(context, numbers, task="perplexity", max_crops=max_crops, path=self.path)

    def _share(self, context: TaskContext) -> tuple[int, int]:
        return text.share(context, self.tokens, task="perplexity", path=self.path)

    def document(self, context: TaskContext, sample: Sample) -> list[Document]:
        """Make BOS and a crop each, with one answer for each half-octave of positions."""
        documents = [text.sized(binned(crop.tokens), crop.sizes) for crop in sample.source]
        queries = len(documents[0].answers)
        return [
            dataclasses.replace(document, first_query=n * queries)
            for n, document in enumerate(documents)
        ]


def binned(tokens: np.ndarray) -> Document:
    """Make a document with one answer for each half-octave of positions."""
    edges = np.append(BIN_STARTS[len(tokens) > BIN_STARTS], len(tokens))
    low, high = edges[:-1], edges[1:]
    center = np.rint(np.sqrt(low * (high - 1)))
    return Document.from_lists(tokens, np.stack([low, high - low, center], axis=1))
