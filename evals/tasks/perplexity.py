"""Perplexity by position: what more context is worth to the next token of real text.

One crop a document, from a random place in it, so that a position in context is not a position in
the book; no packing, BOS in front. An "answer" is all tokens whose position lies in one
half-octave: its nll is their mean, its distance the bin's geometric centre. Expect little of it:
perplexity hardly moves with the base where retrieval fails (Men et al., arXiv 2405.14591).
"""

import dataclasses

import numpy as np

from data.figures import Curve, Plot
from data.task import Asked, Document, Draw, Results
from evals import text
from evals.estimate.bins import BIN_STARTS


@dataclasses.dataclass(frozen=True, kw_only=True)
class Perplexity(text.CropTask):
    """See the module."""

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
        # Perplexity near the start of a text is that of single tokens: leave room for the rest.
        y_scale="log2",
        trained=True,
    )

    def document(self, asked: Asked, draw: Draw) -> Document:
        """BOS and a crop, with one answer for each half-octave of positions."""
        crop = draw.source
        return text.sized(binned(crop.tokens), crop.sizes)

    def curves(self, own: Results, every: Results) -> list[Curve]:
        """Perplexity by position, over all documents and seeds."""
        positions, place = np.unique(own["distance"], return_inverse=True)
        count, tokens = np.bincount(place), own["num_tokens"]
        mean = np.bincount(place, own["nll"]) / count
        variance = np.bincount(place, (own["nll"] - mean[place]) ** 2) / count
        nll = np.bincount(place, own["nll"] * tokens) / np.bincount(place, tokens)
        curve = Curve.of(np.maximum(positions, 1), nll, np.sqrt(variance / count))
        return [Curve(curve.x, np.exp(curve.y), np.exp(curve.low), np.exp(curve.high))]


def binned(tokens: np.ndarray) -> Document:
    """Ids with one answer for each half-octave of positions."""
    edges = np.append(BIN_STARTS[len(tokens) > BIN_STARTS], len(tokens))
    low, high = edges[:-1], edges[1:]
    centre = np.rint(np.sqrt(low * (high - 1)))
    return Document.of(tokens, np.stack([low, high - low, centre], axis=1))
