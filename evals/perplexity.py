"""Perplexity by position: what more context is worth to the next token of real text.

One crop a document, from a random place in it, so that a position in context is not a position in
the book; no packing, BOS in front. An "answer" is all tokens whose position lies in one
half-octave: its nll is their mean, its distance the bin's geometric centre. Expect little of it:
perplexity hardly moves with the base where retrieval fails (Men et al., arXiv 2405.14591).
"""

import numpy as np

from data.prepare import prepare
from data.retrieval import RetrievalDocument
from data.store import TokenStore
from data.tokenizer import Tokenizer
from evals.effective_context import cell_start
from experiment.config import ExperimentConfig


def documents(
    config: ExperimentConfig, tokenizer: Tokenizer, length: int, count: int
) -> list[RetrievalDocument]:
    """See `evals`. Fewer than `count` where validation has fewer documents of this length."""
    if config.data.source == "retrieval":
        raise ValueError("perplexity needs text, and data.source=retrieval has none")
    try:
        prepared = prepare(config.data)
    except ValueError as error:
        raise ValueError(f"perplexity needs the text the run was trained on: {error}") from error
    if Tokenizer(prepared / "tokenizer.model") != tokenizer:
        raise ValueError(
            f"perplexity needs the text the run was trained on, but {prepared} has another "
            f"tokenizer: data.source={config.data.source} is not the same on this machine"
        )
    store = TokenStore(prepared / "validation")
    random = np.random.Generator(np.random.Philox(config.evals.seed))
    found, longest = [], 0
    for index in random.permutation(store.num_documents).tolist():
        start, end = store.document_span(index)
        longest = max(longest, end - start)
        if end - start > length:
            crop = int(random.integers(start + 1, end - length, endpoint=True))
            found.append(document(np.append(store.bos_id, store.read(crop, length))))
        if len(found) == count:
            break
    if not found:
        raise ValueError(
            f"perplexity at length {length} needs longer documents: the longest of validation has "
            f"{longest} tokens; ask for --lengths {max(longest - 1, 1)} or less"
        )
    return found


def document(tokens: np.ndarray) -> RetrievalDocument:
    """BOS and a crop, with one answer for each half-octave of positions."""
    starts = sorted({cell_start(number) for number in range(64)})
    edges = np.array([edge for edge in starts if edge < len(tokens)] + [len(tokens)])
    low, high = edges[:-1], edges[1:]
    centre = np.rint(np.sqrt(low * (high - 1)))
    answers = np.stack([low, high - low, centre], axis=1)
    return RetrievalDocument(tokens=tokens.astype(np.int32), answers=answers.astype(np.int32))


def chance(tokenizer: Tokenizer) -> float:
    """See `evals`."""
    return 0.0
