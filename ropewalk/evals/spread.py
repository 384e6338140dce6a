"""Documents spread over the devices of a host, and over the processes of a run."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

from ropewalk.data.task import Document
from ropewalk.evals.score import AnswerScores, Candidate, pass_shape, score
from ropewalk.experiment import distributed
from ropewalk.model.config import Architecture


def spread_score(
    config: Architecture,
    candidates: Sequence[Candidate],
    documents: Sequence[Document],
    length: int,
    *,
    advance: Callable[[int], None],
) -> AnswerScores:
    """Compute `evals.score.score` on all devices of all processes.

    Each device scores a range of the documents, in full passes, so that every pass and therefore
    every score equals that of a lone device. All processes return all scores.
    """
    devices = jax.local_devices()
    num_devices = jax.process_count() * len(devices)
    shape = _, B = pass_shape(len(candidates), len(documents), length)
    size = B * -(-len(documents) // (B * num_devices))
    shares = [documents[start : start + size] for start in range(0, len(documents), size)]
    stopped = threading.Event()

    def on_device(share: Sequence[Document], device: Any) -> AnswerScores:
        def advance_all(count: int) -> None:
            if stopped.is_set():
                raise KeyboardInterrupt
            advance(count * jax.process_count())  # the others are about as far

        with jax.default_device(device):
            return score(config, candidates, share, length, shape=shape, advance=advance_all)

    first = jax.process_index() * len(devices)
    local_shares = shares[first : first + len(devices)]
    if len(local_shares) <= 1:
        local_scores = [on_device(share, devices[0]) for share in local_shares]
    else:
        with ThreadPoolExecutor(len(devices)) as pool:
            try:
                local_scores = list(pool.map(on_device, local_shares, devices))
            except BaseException:
                stopped.set()
                raise
    ends = np.cumsum([0, *(sum(len(x.answers) for x in share) for share in shares)])
    fields = []
    for name, dtype in AnswerScores.dtypes().items():
        field = np.zeros((len(candidates), ends[-1]), dtype)
        for number, scores in enumerate(local_scores, first):
            field[:, ends[number] : ends[number + 1]] = getattr(scores, name)
        fields.append(distributed.merge(field))
    return AnswerScores(*fields)
