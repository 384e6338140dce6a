from pathlib import Path

import pytest

from ropewalk.evals import task_context
from ropewalk.evals.tasks.pg19 import Pg19
from ropewalk.reporting.task_view import view_of
from tests.data.helpers import plain_text
from tests.evals.helpers import make_documents, rows

TEXTS = {2544: plain_text(1, 40), 10146: plain_text(2, 60), 860: "é " + plain_text(3, 50)}


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "test").mkdir()
    for book_id, string in TEXTS.items():
        (tmp_path / "test" / f"{book_id}.txt").write_text(string, "utf-8")
    return tmp_path


def test_an_answer_a_window_and_books_by_their_ids(folder, text_config, text_tokenizer):
    for tokens, sizes in ((None, [32, 16, 16]), (40, [32, 8])):
        task = Pg19(path=str(folder), stride=16, tokens=tokens)
        result = make_documents(task, text_config, text_tokenizer, 32, range(3))
        for number, book_id in enumerate([860, 2544, 10146]):
            mine = [document for document in result if document.number == number]
            expected = text_tokenizer.encode(TEXTS[book_id].strip())[:tokens]
            spans = [(e.tokens, *e.answers[0, :2]) for e in mine]
            assert [int(i) for ids, start, count in spans for i in ids[start:][:count]] == expected
            assert [int(count) for _, _, count in spans[:3]] == sizes
        assert task.num_documents(task_context(text_config, text_tokenizer, 32), 64) == 100


def test_three_means_of_two_books():
    # Book 0: 3 tokens of 1 nat and 1 of 3, mean 1.5; book 4: 4 tokens of .5 nats.
    result = rows(document=[0, 0, 4], nll=[1.0, 3.0, 0.5], num_tokens=[3, 1, 4])
    (mean,) = view_of("pg19").columns(result, None).values()
    assert mean == pytest.approx(3.0652052)  # exp of the mean is 2.718
