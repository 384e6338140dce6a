import re
from collections import Counter

import pytest

from ropewalk import evals
from tests.evals.helpers import make_documents

INTRO = (
    "Below is a numbered list of words. In these words, some appear more often than others. "
    "Memorize the ones that appear most often.\n"
)
QUESTION = (
    "\nQuestion: What are the 10 most common words in the above list? Answer: The top 10 words "
    "that appear most often in the list are: "
)


def numbered(text):
    """The words of `1. word 2. word ...`."""
    items = re.findall(r"(\d+)\. (\S+)", text)
    assert text == " ".join(f"{number}. {word}" for number, word in items)
    assert [int(number) for number, _ in items] == list(range(1, len(items) + 1))
    return [word for _, word in items]


def decoded(config, tokenizer, length, numbers):
    """Words and answer of example and question, of each document."""
    for document in make_documents(evals.parse("cwe"), config, tokenizer, length, numbers):
        start, example, query = tokenizer.decode(document.tokens).split(INTRO)
        assert start == ""
        halves = [part.rstrip("\n").split(QUESTION) for part in (example, query)]
        yield document, [(numbered(listed), numbered(answer)) for listed, answer in halves]


@pytest.mark.parametrize(
    ("length", "example", "query"),
    [(2000, {3: 10, 1: 10}, {6: 10, 1: None}), (4096, {10: 10, 3: 30}, {30: 10, 3: None})],
)
def test_words_occur_as_often_as_officially(length, example, query, prose_config, prompt_tokenizer):
    orders = set()
    for document, halves in decoded(prose_config, prompt_tokenizer, length, range(6)):
        for (listed, answer), expected in zip(halves, (example, query), strict=True):
            counts = Counter(listed)
            result = Counter(counts.values())
            assert set(result) == set(expected)
            assert all(result[often] == number for often, number in expected.items() if number)
            often = max(expected)
            assert {word for word in counts if counts[word] == often} == set(answer)
            # The only order that a model can know: that of first occurrence.
            assert answer == [word for word in counts if counts[word] == often]
        listed, answer = halves[1]
        orders.add(tuple(answer.index(word) if word in answer else -1 for word in listed[:60]))
        texts = [
            prompt_tokenizer.decode(document.tokens[start : start + count]).strip()
            for start, count, _ in document.answers
        ]
        assert texts == halves[1][1]
    # The same shuffle for every document would put the common words at the same places.
    assert len(orders) == 6
