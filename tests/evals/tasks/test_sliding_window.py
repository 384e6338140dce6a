import numpy as np

from ropewalk.evals.estimate import summaries
from ropewalk.evals.tasks.sliding_window import SlidingWindow
from ropewalk.evals.text import windows
from ropewalk.reporting.task_view import view_of
from tests.evals.helpers import make_documents, rows


def test_windows_of_a_text_of_eleven_tokens():
    """BOS is 1, the text is 10 ... 20."""
    sizes = np.stack([np.arange(12), np.arange(12) % 2], axis=1)
    result = windows(np.array([1, *range(10, 21)]), sizes, length=6, stride=2)
    assert [document.tokens.tolist() for document in result] == [
        [1, 10, 11, 12, 13, 14, 15],
        [1, 12, 13, 14, 15, 16, 17],
        [1, 14, 15, 16, 17, 18, 19],
        [1, 16, 17, 18, 19, 20],
    ]
    # First index, number of ids, context.
    answers = [document.answers.tolist() for document in result]
    assert answers == [[[1, 6, 0]], [[5, 2, 4]], [[5, 2, 4]], [[5, 1, 4]]]
    assert [document.first_query for document in result] == [0, 1, 2, 3]
    # Sizes 1 + ... + 6 of the first window's ids, then 7 + 8, 9 + 10, 11.
    assert [int(document.num_bytes[0]) for document in result] == [21, 15, 19, 11]
    assert [int(document.num_words[0]) for document in result] == [3, 1, 1, 1]


def test_bytes_and_words_are_those_of_the_held_out_text(text_config, text_tokenizer, store):
    task = SlidingWindow(stride=16, tokens=10**6)
    result = make_documents(task, text_config, text_tokenizer, 64, range(99))
    names = ("num_bytes", "num_words")
    texts = [text_tokenizer.decode(store.document(i)) for i in range(store.num_documents)]
    totals = [
        [sum(int(x) for e in result if e.number == n for x in getattr(e, name)) for name in names]
        for n in range(len(texts))
    ]
    assert sorted(totals) == sorted([len(t.encode()), len(t.split())] for t in texts)
    # All ids but each document's BOS and EOS.
    num_tokens = sum(int(document.answers[0, 1]) for document in result)
    assert num_tokens == store.num_tokens - 2 * store.num_documents


def test_the_mean_over_windows_has_a_column_by_hand():
    """YaRN's mean of 1 and 4 nats a token, of windows of 6 and 2 tokens: 2.5, not 1.75."""
    result = rows(nll=[1.0, 4.0], num_tokens=[6, 2])
    assert summaries.mean_nll(result) == 1.75
    assert view_of("sliding_window").columns(result, None) == {"window_mean_nll": 2.5}
