"""Held-out text of a run: what the tasks that need real text share."""

import numpy as np

from data.prepare import prepare
from data.store import TokenStore
from data.tokenizer import Tokenizer
from experiment.config import ExperimentConfig


def validation(config: ExperimentConfig, tokenizer: Tokenizer, *, task: str) -> TokenStore:
    """The run's held-out documents, tokenized.

    Raises:
      ValueError: if the run has no text, or what it was trained on is not to be had here.
    """
    if config.data.source == "retrieval":
        raise ValueError(f"{task} needs text, and data.source=retrieval has none")
    try:
        prepared = prepare(config.data)
    except ValueError as error:
        raise ValueError(f"{task} needs the text the run was trained on: {error}") from error
    if Tokenizer(prepared / "tokenizer.model") != tokenizer:
        raise ValueError(
            f"{task} needs the text the run was trained on, but {prepared} has another "
            f"tokenizer: data.source={config.data.source} is not the same on this machine"
        )
    return TokenStore(prepared / "validation")


def crops(store: TokenStore, length: int, numbers: range, *, seed: int, task: str):
    """One crop of `length` ids from a random place of each of `numbers` documents, without BOS.

    Yields:
      (number, int32 `[length]`); documents in an order that `seed` decides, the too short ones
      left out; fewer than asked for where there are no more.

    Raises:
      ValueError: if every document is shorter; it names the longest.
    """
    random = np.random.Generator(np.random.Philox(seed))
    number, longest = 0, 0
    for index in random.permutation(store.num_documents).tolist():
        start, end = store.document_span(index)
        longest = max(longest, end - start)
        if end - start > length:
            place = int(random.integers(start + 1, end - length, endpoint=True))
            if number in numbers:
                yield number, store.read(place, length)
            number += 1
    if not number:
        raise ValueError(
            f"{task} at length {length} needs longer documents: the longest of validation has "
            f"{longest} tokens; ask for --lengths {max(longest - 1, 1)} or less"
        )
