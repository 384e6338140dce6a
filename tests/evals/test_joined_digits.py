"""Retrieval by tokenizers with pieces of several digits: documents are encoded in one piece."""

import dataclasses
import re

import numpy as np
import pytest
import tokenizers

from ropewalk.data.prepare import prepare
from ropewalk.data.tokenizer import Tokenizer
from tests.data import json_tokenizers
from tests.evals.helpers import PROMPT_WORDS, experiment, make_documents
from tests.evals.test_tasks import IN_WORDS, floor

CHATS = ("chat_needles(needles=3)", "passkey(chat=True)")
TASKS = (*IN_WORDS, *(pytest.param(task, marks=pytest.mark.hf) for task in CHATS))
CHAT = "{% for m in messages %}</s>{{ m.role }}\n{{ m.content }}</s>\n{% endfor %}assistant\n"


def texts():
    random = np.random.default_rng(0)
    for _ in range(400):
        numbers = " ".join(f"is: {n}" for n in random.integers(10, 10**5, 9))
        yield f"{PROMPT_WORDS} {numbers} is <{numbers[4:7]}>"


@pytest.fixture(scope="module", params=["across_spaces", "llama3"])
def joined(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    make = getattr(json_tokenizers, request.param)
    return Tokenizer(make(texts(), folder, size=1500), chat_template=CHAT)


@pytest.fixture
def config(joined, prose_config, tmp_path):
    (tmp_path / "tokenizer.json").write_bytes(joined.model)
    paths = dict(tokenizer=str(tmp_path / "tokenizer.json"), prepared_root=str(tmp_path))
    data = dataclasses.replace(prose_config.data, **paths)
    prepare(data)
    return experiment(data)


@pytest.mark.parametrize("task", TASKS)
def test_ids_are_those_of_the_text_in_one_piece(task, joined, config):
    library = tokenizers.Tokenizer.from_str(joined.model.decode())
    name, length = task.partition("(")[0], floor(task, config, joined) + 700
    is_number = name not in ("vt", "cwe", "fwe") and "cue" not in task
    digits = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}" if "uuids" in task else r"\d{5,}"
    pattern = digits if is_number else r" (?:eat a.*day\.|[a-zA-Z]+(?:-[a-z]+)?(?=$| |\n))"
    for document in make_documents(task, config, joined, length, range(2)):
        text = library.decode(document.tokens[1:].tolist(), skip_special_tokens=False)
        expected = library.encode(text, add_special_tokens=False)
        assert document.tokens.tolist() == [joined.bos_id, *expected.ids]
        assert length - 80 < len(document.tokens) <= length + 1
        assert document.merged is not None
        spans = [(0, 0), *expected.offsets]
        answers = zip(document.answers.tolist(), document.merged.tolist(), strict=True)
        for (start, count, distance), merged in answers:
            begin, end = spans[start][0], spans[start + count - 1][1]
            answer = re.findall(pattern, text[begin:end])[-1]
            assert merged == (answer != text[begin:end])
            # The first id of the source holds the start of the answer.
            source, after = spans[start - 1 - distance]
            assert source <= text.index(answer, source) < after
