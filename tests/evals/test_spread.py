"""Documents over devices and processes; `tests/training/test_processes.py` has real ones."""

import jax
import numpy as np
import pytest

from ropewalk.data.task import Document
from ropewalk.evals import spread
from ropewalk.evals.score import AnswerScores

ROWS_PER_PASS = 16


@pytest.fixture
def shares(monkeypatch):
    """The numbers of the documents of each call of `score`, whose ranks are these numbers."""
    calls = []

    def score(config, candidates, documents, length, *, shape, advance):
        numbers = np.array([document.number for document in documents for _ in document.answers])
        calls.append([document.number for document in documents])
        for _ in range(0, len(documents), shape[1]):
            advance(shape[1])
        fields = {name: np.tile(numbers, (2, 1)) for name in AnswerScores._fields}
        return AnswerScores(**fields)

    monkeypatch.setattr(spread, "score", score)
    monkeypatch.setattr(spread, "pass_shape", lambda *_: (2, ROWS_PER_PASS))
    return calls


def documents(count: int) -> list[Document]:
    """Documents with one to three answers."""
    answers = np.ones((3, 3), int)
    return [
        Document(tokens=np.arange(9), answers=answers[: 1 + i % 3], number=i) for i in range(count)
    ]


def spread_score(inputs, advance=lambda count: None):
    return spread.spread_score(None, [None, None], inputs, 8, advance=advance)


@pytest.mark.parametrize(
    ("num_documents", "num_devices", "sizes"),
    [(100, 1, [100]), (100, 3, [48, 48, 4]), (20, 4, [16, 4]), (16, 4, [16])],
)
def test_devices_share_full_passes(monkeypatch, shares, num_documents, num_devices, sizes):
    monkeypatch.setattr(jax, "local_devices", lambda: jax.devices() * num_devices)
    done = []
    inputs = documents(num_documents)
    scores = spread_score(inputs, done.append)
    assert sorted(map(len, shares), reverse=True) == sizes
    expected = [x.number for x in inputs for _ in x.answers]
    np.testing.assert_array_equal(scores.rank, [expected] * 2)
    np.testing.assert_array_equal(scores.nll, [expected] * 2)
    assert scores.nll.dtype == np.float64 and scores.exact_match.dtype == bool
    assert sum(done) >= num_documents


def test_an_error_on_a_device_stops_the_others(monkeypatch, shares):
    monkeypatch.setattr(jax, "local_devices", lambda: jax.devices() * 3)

    def advance(count):
        raise MemoryError

    with pytest.raises(MemoryError):
        spread_score(documents(100), advance)
