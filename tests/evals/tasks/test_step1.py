import dataclasses

import jax
import numpy as np
import pytest

from ropewalk.data import pipeline
from ropewalk.evals import score
from ropewalk.evals.estimate import summaries
from ropewalk.evals.score import Candidate
from ropewalk.evals.tasks.step1 import CHUNK, Step1
from ropewalk.model import loss, transformer
from tests.evals.helpers import experiment, make_documents, rows

LENGTH = 600


@pytest.fixture(scope="module")
def mixed(text_config):
    """Text and retrieval rows, trained at 64 tokens; batches of two."""
    data = dataclasses.replace(
        text_config.data, retrieval_fraction=0.3, retrieval_tasks=("kv",), seed=5
    )
    return experiment(data)


@pytest.fixture(scope="module")
def first_batches(mixed):
    """Two batches, as one of four rows, of a run at the new length."""
    data = dataclasses.replace(mixed.data, context_length=LENGTH)
    stream = pipeline.make_batches(pipeline.open_data(data), start_step=0)
    pair = [next(stream) for _ in range(2)]
    return {name: np.concatenate([batch[name] for batch in pair]) for name in pair[0]}


@pytest.fixture(scope="module")
def result(mixed, text_tokenizer):
    return make_documents(Step1(), mixed, text_tokenizer, LENGTH, range(4))


def test_documents_are_the_rows_of_the_first_batches(result, first_batches):
    kinds = set()
    for row, document in enumerate(result):
        expected = {name: column[row] for name, column in first_batches.items()}
        assert document.number == row
        assert document.tokens[:-1].tolist() == expected["tokens"].tolist()
        assert document.segment_ids is not None
        assert document.segment_ids.tolist() == expected["segment_ids"].tolist()
        # Answers are all targets that count and no others, each once, in order.
        positions = [
            first + i for first, count, _ in document.answers.tolist() for i in range(count)
        ]
        assert positions == (np.flatnonzero(expected["loss_mask"]) + 1).tolist()
        targets = expected["targets"][expected["loss_mask"] > 0]
        assert document.tokens[positions].tolist() == targets.tolist()
        first, count, distance = document.answers.T
        assert distance.tolist() == (expected["positions"][first - 1] + 1).tolist()
        assert count.max() <= CHUNK
        kinds.add("text" if count.max() == CHUNK else "retrieval")
    assert kinds == {"text", "retrieval"}


@pytest.mark.slow
def test_the_mean_is_the_loss_that_training_reports(result, first_batches, mixed):
    """Shuffled positions or a leak between packed documents would show."""
    model = dataclasses.replace(mixed.model, embed_dim=16, head_dim=8, mlp_dim=16)
    params = jax.tree.map(lambda x: 3 * x, transformer.init(model, 0))
    table = model.position_table(LENGTH)

    @jax.jit
    def token_nll(tokens, targets, positions, segment_ids):
        hidden_BTD = transformer.hidden(model, params, table, tokens, positions, segment_ids)
        return loss.token_nll(model, params, hidden_BTD, targets)

    names = ("tokens", "targets", "positions", "segment_ids")
    nll_BT = np.asarray(token_nll(*(first_batches[name] for name in names)))
    mask_BT = first_batches["loss_mask"]
    expected = (nll_BT * mask_BT).sum() / mask_BT.sum()

    scores = score.score(model, [Candidate(params, lambda _: table)], result, LENGTH)
    counts = np.concatenate([document.answers[:, 1] for document in result])
    mean = summaries.mean_nll(rows(nll=scores.nll[0], num_tokens=counts))
    assert mean == pytest.approx(expected, abs=1e-5)
