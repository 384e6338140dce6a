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

from data.figures import Curve, Plot
from data.task import Document, Results, Sample, Task, TaskContext
from evals import text
from evals.estimate.bins import BIN_STARTS
from utils.checks import Count


@dataclasses.dataclass(frozen=True, kw_only=True)
class Perplexity(Task):
    """Perplexity by position; see the module.

    Attributes:
      tokens: minimum number of tokens, unless the text has fewer. Each crop comes from a different
        document; if there are too few, documents give several crops that do not overlap.
    """

    kind = "likelihood"
    order = 3
    plot = Plot(
        name="perplexity_by_position",
        alternative="Perplexity of held-out text against position in the document.",
        caption="Perplexity of held-out text by position in the document, with 95% intervals over "
        "documents. Men et al. (arXiv 2405.14591) found it nearly blind to the base where "
        "retrieval is not.",
        xlabel="position in the document (tokens, log scale)",
        ylabels=("perplexity of held-out text (log scale)",),
        # Perplexity is very high at the first positions, so a linear scale would hide the rest.
        y_scale="log2",
        trained=True,
    )

    tokens: Count = 100_000

    def num_documents(self, context: TaskContext, documents: int) -> int:
        """Return the number of documents with `tokens` tokens, or all documents."""
        return max(documents, self._share(context).documents)

    def sources(
        self, context: TaskContext, numbers: range
    ) -> Iterable[tuple[int, list[text.Crop]]]:
        """Return the crops of each document."""
        most = self._share(context).crops
        return text.several_crops(
            context, numbers, task="perplexity", length=context.length, most=most
        )

    def _share(self, context: TaskContext) -> text.Share:
        return text.share(context, self.tokens, task="perplexity")

    def document(self, context: TaskContext, sample: Sample) -> list[Document]:
        """Make BOS and a crop each, with one answer for each half-octave of positions."""
        documents = [text.sized(binned(crop.tokens), crop.sizes) for crop in sample.source]
        queries = len(documents[0].answers)
        return [
            dataclasses.replace(document, first_query=n * queries)
            for n, document in enumerate(documents)
        ]

    def curves(self, trained: Results, results: Results) -> list[Curve]:
        """Return perplexity by position, over all documents and seeds."""
        positions, index = np.unique(trained["distance"], return_inverse=True)
        count, tokens = np.bincount(index), trained["num_tokens"]
        mean = np.bincount(index, trained["nll"]) / count
        variance = np.bincount(index, (trained["nll"] - mean[index]) ** 2) / count
        nll = np.bincount(index, trained["nll"] * tokens) / np.bincount(index, tokens)
        curve = Curve.from_means(np.maximum(positions, 1), nll, np.sqrt(variance / count))
        return [Curve(curve.x, np.exp(curve.y), np.exp(curve.low), np.exp(curve.high))]


def binned(tokens: np.ndarray) -> Document:
    """Make a document with one answer for each half-octave of positions."""
    edges = np.append(BIN_STARTS[len(tokens) > BIN_STARTS], len(tokens))
    low, high = edges[:-1], edges[1:]
    centre = np.rint(np.sqrt(low * (high - 1)))
    return Document.from_lists(tokens, np.stack([low, high - low, centre], axis=1))
