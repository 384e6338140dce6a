import os
from pathlib import Path

import numpy as np
import pytest

from data import pg19 as pg19_lib
from data.tokenizer import Tokenizer
from evals.tasks.pg19 import Pg19, book_perplexities
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
        mine = [each for each in result if each.number == number]
        expected = text_tokenizer.encode(TEXTS[book_id].strip())
        scored = [t for e in mine for t in e.tokens[e.answers[0, 0] :][: e.answers[0, 1]].tolist()]
        assert scored == expected
        assert [each.first_query for each in mine] == list(range(len(mine)))
        assert [int(e.answers[0, 1]) for e in mine[:3]] == [32, 16, 16]
        encoded = TEXTS[book_id].strip().encode()
        assert sum(int(n) for e in mine for n in e.num_bytes) == len(encoded)
        assert sum(int(n) for e in mine for n in e.num_words) == len(encoded.split())
    some = make_documents(task, text_config, text_tokenizer, 32, range(1, 2))
    assert {each.number for each in some} == {1}
    assert [each.tokens.tolist() for each in some] == [
        each.tokens.tolist() for each in result if each.number == 1
    ]
    last = make_documents(task, text_config, text_tokenizer, 32, range(2, 9))
    assert {each.number for each in last} == {2}
    first = Pg19(path=str(folder), stride=16, tokens=40)
    begun = make_documents(first, text_config, text_tokenizer, 32, range(2))
    assert [int(each.answers[0, 1]) for each in begun] == [32, 8, 32, 8]


def test_three_means_of_two_books():
    # Book 0: 3 tokens of 1 nat and 1 of 3, mean 1.5; book 4: 4 tokens of .5 nats.
    result = rows(document=[0, 0, 4], nll=[1.0, 3.0, 0.5], num_tokens=[3, 1, 4])
    assert book_perplexities(result) == pytest.approx({0: 4.4816891, 4: 1.6487213})
    assert Pg19().columns(result, None) == {
        "book_perplexity": pytest.approx(3.0652052)
    }  # exp of the mean is 2.718


REAL = Path(os.environ.get("ROPEWALK_DATA", Path(__file__).parents[3] / "../shared/data"))


@pytest.mark.skipif(not (REAL / "pg19-test").is_dir(), reason="no PG-19 books here")
def test_real_books(text_config, text_tokenizer: Tokenizer):
    books = pg19_lib.test_books(str(REAL / "pg19-test"))
    ids = [book.id for book in books]
    assert ids == sorted(set(ids)) and {860, 10146, 2544} <= set(ids) and len(ids) <= 100
    task = Pg19(path=str(REAL / "pg19-test"), tokens=200, stride=64)
    result = make_documents(task, text_config, text_tokenizer, 128, range(2))
    assert [int(each.answers[0, 1]) for each in result] == [128, 64, 8] * 2
    for number in (0, 1):
        mine = [each for each in result if each.number == number]
        num_bytes = sum(int(n) for each in mine for n in each.num_bytes)
        start = books[number].text.encode()[:num_bytes]
        assert np.sum([each.num_words for each in mine]) == len(start.split())
