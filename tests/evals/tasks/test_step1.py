import dataclasses

import numpy as np

from ropewalk.data import pipeline
from ropewalk.evals import score
from ropewalk.evals.tasks.step1 import CHUNK, Step1
from tests.evals.helpers import experiment, make_documents

LENGTH = 600


def test_documents_are_the_rows_of_the_first_batches(text_config, text_tokenizer):
    """The run trained at 64 tokens on text and retrieval rows; its rows are made longer here."""
    changes = dict(retrieval_fraction=0.3, retrieval_tasks=("kv",), seed=5)
    data = dataclasses.replace(text_config.data, **changes)
    result = make_documents(Step1(), experiment(data), text_tokenizer, LENGTH, range(20))
    rows = pipeline.open_data(dataclasses.replace(data, context_length=LENGTH))
    stream = pipeline.make_batches(rows, start_step=0)
    batches = [next(stream) for _ in range(10)]
    kinds = set()
    for row, document in enumerate(result):
        expected = {name: column[row % 2] for name, column in batches[row // 2].items()}
        assert document.number == row
        asked = score._batch([document], 1, LENGTH)._asdict()
        for name in ("tokens", "positions", "segment_ids"):
            np.testing.assert_array_equal(asked[f"{name}_BT"][0], expected[name], err_msg=name)
        # Answers are all targets that count and no others, each once, in order.
        positions = [first + i for first, count, _ in document.answers for i in range(count)]
        assert positions == (np.flatnonzero(expected["loss_mask"]) + 1).tolist()
        targets = expected["targets"][expected["loss_mask"] > 0]
        assert document.tokens[positions].tolist() == targets.tolist()
        first, count, distance = document.answers.T
        assert distance.tolist() == (expected["positions"][first - 1] + 1).tolist()
        assert count.max() <= CHUNK
        kinds.add(("text" if count.max() == CHUNK else "retrieval", expected["segment_ids"].max()))
    assert {("text", 1), ("text", 2), ("retrieval", 1)} <= kinds  # packed rows too
