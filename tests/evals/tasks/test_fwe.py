import re
from collections import Counter

import numpy as np

from ropewalk import evals
from ropewalk.evals.tasks.fwe import Fwe
from tests.evals.helpers import make_documents

PATTERN = (
    r"Read the following coded text and track the frequency of each coded word\. Find the three "
    r"most frequently appeared coded words\. (?P<text>[a-z. ]+)\nQuestion: Do not provide any "
    r"explanation\. Please ignore the dots '\.\.\.\.'\. What are the three most frequently "
    r"appeared words in the above coded text\? Answer: According to the coded text above, the "
    r"three most frequently appeared words are: (?P<answer>[a-z ]+)"
)


def test_the_three_most_frequent_words_in_order(prose_config, prompt_tokenizer):
    for length in (330, 500, 2000):
        for document in make_documents(Fwe(), prose_config, prompt_tokenizer, length, range(10)):
            match = re.fullmatch(PATTERN, prompt_tokenizer.decode(document.tokens))
            assert match
            coded = match["text"].split(" ")
            (dots, _), *ranked = Counter(coded).most_common()
            assert dots == "..." and all(re.fullmatch("[a-z]{6}", word) for word, _ in ranked)
            counts = [count for _, count in ranked[:4]]
            assert sorted(set(counts), reverse=True) == counts  # no ties
            answer = match["answer"].split(" ")
            assert answer == [word for word, _ in ranked[:3]]
            texts = [
                prompt_tokenizer.decode(document.tokens[s : s + n]) for s, n, _ in document.answers
            ]
            assert [text.strip() for text in texts] == answer


def test_frequencies_follow_zeta(prose_config, prompt_tokenizer):
    """Alpha 2: ranks 2, 3 and 4 have 4/9 and 1/4 of the words of rank 2; rank 1 has 4 times."""
    (document,) = make_documents(evals.parse("fwe"), prose_config, prompt_tokenizer, 8000, range(1))
    text = re.fullmatch(PATTERN, prompt_tokenizer.decode(document.tokens))["text"]
    counts = [count for _, count in Counter(text.split(" ")).most_common()]
    np.testing.assert_allclose(
        np.array(counts[:5]) / counts[1], [4, 1, 4 / 9, 1 / 4, 4 / 25], atol=0.02
    )
    # A word for every 50 tokens, less those that round to none.
    assert 30 < len(counts) <= 160
