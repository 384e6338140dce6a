import dataclasses

import numpy as np
import pytest

from ropewalk import evals
from ropewalk.data.prepare import prepare
from ropewalk.evals import text
from ropewalk.evals.tasks import perplexity
from ropewalk.evals.tasks.perplexity import Perplexity
from ropewalk.evals.text import MissingTextError
from ropewalk.reporting.task_view import view_of
from tests.evals.helpers import experiment, make_documents, rows


def test_half_octaves_of_position():
    tokens = np.arange(25)
    # Positions 1, 2, 3, 4-5, 6-7, 8-11, 12-15, 16-22, 23-24.
    first, count, distance = perplexity.binned(tokens).answers.T.tolist()
    assert first == [1, 2, 3, 4, 6, 8, 12, 16, 23]
    assert count == [1, 1, 1, 2, 2, 4, 4, 7, 2]
    assert distance == [1, 2, 3, 4, 6, 9, 13, 19, 23]


def test_perplexity_by_position_against_numbers_made_by_hand():
    """At position 4, three documents have 1, 2 and 6 nats in 1, 1 and 2 tokens, mean 9/4.

    The residuals -5/4, -1/4 and 3/2 have a sum of squares of 31/8; Student's quantile for 2 degrees
    of freedom is 4.303. A second seed of equal answers tells nothing more about documents.
    """
    answers = rows(
        distance=[4, 4, 4, 9], nll=[1.0, 2.0, 3.0, 7.0], num_tokens=[1, 1, 2, 1],
        document=[0, 1, 2, 0],
    )  # fmt: skip
    for seeds in (1, 2):
        pooled = {name: np.tile(column, seeds) for name, column in answers.items()}
        (curve,) = view_of("perplexity").curves(pooled, pooled)
        assert curve.x.tolist() == [4, 9]
        np.testing.assert_allclose(np.log(curve.y), [9 / 4, 7])
        half = 4.302653 * (3 / 2 * 31 / 8) ** 0.5 / 4
        np.testing.assert_allclose(np.log(curve.high), [9 / 4 + half, np.nan], rtol=1e-6)


@pytest.mark.parametrize("tokens", [1, 400, 1500, 10**6])
def test_as_few_crops_and_documents_as_the_tokens_take(text_config, text_tokenizer, store, tokens):
    """Documents first, then crops of each; all that fit where there are fewer tokens."""
    task, length = Perplexity(tokens=tokens), 200
    context = evals.task_context(text_config, text_tokenizer, length)
    documents = task.documents(context, range(task.num_documents(context, 1)))
    crops = np.bincount([document.number for document in documents])
    rooms = [(len(store.document(i)) - 2) // length for i in range(store.num_documents)]
    rooms = sorted(room for room in rooms if room)
    for limit in range(1, max(rooms) + 1):
        fitting = np.minimum(rooms, limit)
        if fitting.sum() * length >= tokens:
            break
    assert crops.max() == limit
    assert sorted(crops.tolist()) == sorted(fitting)[: len(crops)] or len(crops) == len(rooms)
    total = sum(int(document.answers[:, 1].sum()) for document in documents)
    assert total == len(documents) * length >= min(tokens, sum(rooms) * length)
    if limit == 1:
        assert len(crops) == max(1, -(-tokens // length))


def test_crops_of_one_document_do_not_overlap(text_config, text_tokenizer, store):
    documents = make_documents(Perplexity(), text_config, text_tokenizer, 200, range(9))
    texts = [store.document(index).tolist() for index in range(store.num_documents)]
    for number in {document.number for document in documents}:
        parts = [document for document in documents if document.number == number]
        queries = [part.first_query + n for part in parts for n in range(len(part.answers))]
        assert queries == list(range(len(queries)))  # answers are told apart
        crops = [document.tokens[1:].tolist() for document in parts]
        (source,) = [text for text in texts if _starts(text, crops[0])]
        ((first,), *rest) = [_starts(source, crop) for crop in crops]
        assert (np.diff([first, *(start for (start,) in rest)]) >= 200).all()


def _starts(text, crop):
    return [n for n in range(1, len(text) - len(crop) + 1) if text[n : n + len(crop)] == crop]


def test_text_is_not_prepared_where_a_received_config_says(text_config, text_tokenizer, tmp_path):
    """The folder could be anywhere, such as a bucket of the run's author."""
    data = dataclasses.replace(text_config.data, prepared_root=str(tmp_path / "elsewhere"))
    context = evals.task_context(experiment(data), text_tokenizer, 64)
    with pytest.raises(MissingTextError, match=r"not prepared in .*elsewhere"):
        make_documents("perplexity", experiment(data), text_tokenizer, 64, range(1))
    assert not list(tmp_path.iterdir())
    prepare(data)
    assert text.prepared(context, task="perplexity").parent == tmp_path / "elsewhere"
