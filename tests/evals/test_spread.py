"""Documents over devices and processes; `tests/training/test_processes.py` has real ones."""

import jax
import numpy as np
import pytest

from ropewalk.data.task import Document
from ropewalk.evals import spread
from ropewalk.evals.score import AnswerScores

# Documents with one to three answers.
DOCUMENTS = [
    Document(tokens=np.arange(9), answers=np.ones((1 + i % 3, 3), int), number=i)
    for i in range(100)
]


@pytest.fixture
def sizes(monkeypatch):
    """Numbers of documents of the calls of `score`; all scores are the documents' numbers."""
    sizes = []

    def score(config, candidates, documents, length, *, shape, advance):
        sizes.append(len(documents))
        advance(len(documents))
        numbers = [document.number for document in documents for _ in document.answers]
        return AnswerScores(*[np.tile(numbers, (2, 1))] * 4)

    monkeypatch.setattr(spread, "score", score)
    monkeypatch.setattr(spread, "pass_shape", lambda *_: (2, 16))
    return sizes


@pytest.mark.parametrize(
    ("num_documents", "num_devices", "expected"),
    [(100, 1, [100]), (100, 3, [48, 48, 4]), (20, 4, [16, 4]), (16, 4, [16])],
)
def test_devices_share_full_passes(monkeypatch, sizes, num_documents, num_devices, expected):
    monkeypatch.setattr(jax, "local_devices", lambda: jax.devices() * num_devices)
    inputs, done = DOCUMENTS[:num_documents], []
    scores = spread.spread_score(None, [None, None], inputs, 8, advance=done.append)
    assert sorted(sizes, reverse=True) == expected and sum(done) == num_documents
    numbers = [document.number for document in inputs for _ in document.answers]
    np.testing.assert_array_equal(scores.rank, [numbers] * 2)
    np.testing.assert_array_equal(scores.nll, [numbers] * 2)
    assert scores.nll.dtype == np.float64 and scores.exact_match.dtype == bool
