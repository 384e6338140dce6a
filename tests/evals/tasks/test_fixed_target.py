import numpy as np
import pytest

from ropewalk.evals.tasks.fixed_target import FixedTarget
from ropewalk.evals.tasks.perplexity import Perplexity
from ropewalk.reporting.tasks.fixed_target import context_gain
from tests.evals.helpers import make_documents, rows


def test_the_same_target_after_more_and_more_of_what_came_before(text_config, text_tokenizer):
    result = make_documents(FixedTarget(target=10), text_config, text_tokenizer, 150, range(2))
    assert [document.number for document in result] == [0] * 4 + [1] * 4
    assert [document.first_query for document in result] == [0, 1, 2, 3] * 2
    # Context 32, 64, 128 and all there is, 150 - 10.
    contexts = [document.answers.tolist() for document in result[:4]]
    assert contexts == [[[context + 1, 10, context]] for context in (32, 64, 128, 140)]
    assert [len(document.tokens) for document in result[:4]] == [43, 75, 139, 151]
    crops = make_documents(Perplexity(), text_config, text_tokenizer, 150, range(2))
    longest, sizes = crops[0].tokens.tolist(), (result[3].num_bytes, result[3].num_words)
    assert result[3].tokens.tolist() == longest
    for document in result[:4]:
        # BOS, then the end of the one text, and the target is the last thing in it.
        assert document.tokens[0] == text_tokenizer.bos_id
        assert document.tokens[1:].tolist() == longest[-len(document.tokens) + 1 :]
        assert document.answers[0, :2].sum() == len(document.tokens)
        assert (document.num_bytes, document.num_words) == sizes
    string = text_tokenizer.decode(longest[-10:])
    assert result[0].num_bytes is not None and result[0].num_bytes.tolist() == [len(string)]


def test_gain_and_its_paired_error():
    nll = np.array([[5.0, 4.5, 4.2, 4.2], [3.0, 2.7, 2.0, 1.98], [7.0, 6.7, 6.6, 6.4]])
    document, query = (index.ravel() for index in np.indices(nll.shape))
    columns = {"document": document, "query": query, "distance": 32 << query, "nll": nll.ravel()}
    result = context_gain(rows(**columns, num_tokens=[10] * 12))
    assert result.contexts == [32, 64, 128, 256]
    # Gains at 64: .5 .3 .3; at 128: .8 1.0 .4; at 256: .8 1.02 .6. Texts differ by nats, gains not.
    assert [gain.mean for gain in result.gains] == pytest.approx([0, 1.1 / 3, 2.2 / 3, 2.42 / 3])
    errors = [gain.standard_error for gain in result.gains]
    assert errors == pytest.approx([0, 0.0666667, 0.1763834, 0.1212893], abs=1e-6)
    assert result.length == 256  # 2.2 / 2.42 = .91
