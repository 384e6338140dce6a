from pathlib import Path

import pytest

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


def test_an_answer_a_window_and_books_in_the_order_of_their_ids(
    folder, text_config, text_tokenizer
):
    task = Pg19(path=str(folder), stride=16)
    result = make_documents(task, text_config, text_tokenizer, 32, range(3))
    for number, book_id in enumerate([860, 2544, 10146]):
        mine = [document for document in result if document.number == number]
        expected = text_tokenizer.encode(TEXTS[book_id].strip())
        scored = [t for e in mine for t in e.tokens[e.answers[0, 0] :][: e.answers[0, 1]].tolist()]
        assert scored == expected
        assert [document.first_query for document in mine] == list(range(len(mine)))
        assert [int(e.answers[0, 1]) for e in mine[:3]] == [32, 16, 16]
        encoded = TEXTS[book_id].strip().encode()
        assert sum(int(n) for e in mine for n in e.num_bytes) == len(encoded)
        assert sum(int(n) for e in mine for n in e.num_words) == len(encoded.split())
    first = Pg19(path=str(folder), stride=16, tokens=40)
    begun = make_documents(first, text_config, text_tokenizer, 32, range(2))
    assert [int(document.answers[0, 1]) for document in begun] == [32, 8, 32, 8]


def test_three_means_of_two_books():
    # Book 0: 3 tokens of 1 nat and 1 of 3, mean 1.5; book 4: 4 tokens of .5 nats.
    result = rows(document=[0, 0, 4], nll=[1.0, 3.0, 0.5], num_tokens=[3, 1, 4])
    assert view_of("pg19").columns(result, None) == {
        "book_perplexity": pytest.approx(3.0652052)
    }  # exp of the mean is 2.718
