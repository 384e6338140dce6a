"""Retrieval by tokenizers with pieces of several digits: documents are encoded in one piece."""

import dataclasses
import re

import numpy as np
import pytest
import tokenizers

from ropewalk.data.prepare import prepare
from ropewalk.data.task import Document
from ropewalk.data.text_task import encode_whole
from ropewalk.data.tokenizer import Tokenizer
from ropewalk.evals import parse, runner
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


def test_answers_are_found_by_bytes(tmp_path):
    tokenizer = Tokenizer(json_tokenizers.gpt2(texts(), tmp_path, size=1500))
    parts = ["\u4e2d" * 2, " is: ", "48213", ". So: ", "48213"]
    ids = [tokenizer.encode(part, inside=True) for part in parts]
    ids[0] = ids[0][1:]  # in the middle of a character
    tokens = [tokenizer.bos_id, *np.concatenate(ids).tolist()]
    source, start = 1 + len(ids[0] + ids[1]), len(tokens) - len(ids[4])
    answers = [[start, len(ids[4]), start - 1 - source]]
    result = encode_whole(tokenizer, Document.from_lists(tokens, answers))
    expected = tokenizer.encode("\u4e2d is: 48213. So: 48213", inside=True)
    assert result.tokens.tolist() == [tokenizer.bos_id, *expected]
    ((start, count, distance),) = result.answers.tolist()
    assert tokenizer.decode(result.tokens[start : start + count]) == " 48213"
    assert tokenizer.decode(result.tokens[start - 1 - distance :]) == " 48213. So: 48213"
    assert result.merged is not None and result.merged.tolist() == [True]
    other = dataclasses.replace(result, number=1, merged=np.zeros(1, bool))
    note = runner._describe_merged(runner.Questions(parse("needle"), 9, [result, other]))
    assert " at 9: the tokenizer joins" in note and "1 of 2 documents" in note
