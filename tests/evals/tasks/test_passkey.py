import copy
import re

import numpy as np
import pytest

from ropewalk.evals.tasks.chat_needles import ChatNeedles
from ropewalk.evals.tasks.passkey import Passkey
from tests.evals.helpers import make_documents

GARBAGE = (
    "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
)
PATTERN = (
    "There is an important info hidden inside a lot of irrelevant text. Find it and memorize them. "
    "I will quiz you about the important information there.\n"
    r"(?P<before>.*)\nThe pass key is (?P<key>[1-9]\d{4}). Remember it. (?P=key) is the pass key.\n"
    r"(?P<after>.*)\nWhat is the pass key\? The pass key is (?P=key)"
)


def test_the_prompt_is_landmark_attentions(prose_config, prompt_tokenizer):
    endless = " ".join([GARBAGE] * 30)
    keys, befores = set(), set()
    for document in make_documents(Passkey(), prose_config, prompt_tokenizer, 500, range(40)):
        assert len(document.tokens) == 501
        match = re.fullmatch(PATTERN, prompt_tokenizer.decode(document.tokens))
        assert match
        assert endless.startswith(match["before"]) and endless.startswith(match["after"])
        keys.add(match["key"])
        befores.add(len(match["before"]))
        ((start, count, distance),) = document.answers.tolist()
        assert (start, count) == (496, 5)
        # From the second time the key is said.
        between = prompt_tokenizer.decode(document.tokens[start - 1 - distance : start])
        assert between.startswith(f"{match['key']} is the pass key.\n")
    assert len(keys) == 40 and len(befores) > 25


TEMPLATE = (
    "{% for message in messages %}[{{ message.role }}] {{ message.content }} [end]\n{% endfor %}"
    "[assistant] "
)


@pytest.fixture
def chat_tokenizer(prompt_tokenizer):
    tokenizer = copy.copy(prompt_tokenizer)
    tokenizer.chat_template = TEMPLATE
    return tokenizer


@pytest.mark.hf
def test_in_a_chat_the_cue_begins_the_answer(prose_config, prompt_tokenizer, chat_tokenizer):
    intro, rest = PATTERN.split("\n", 1)
    head, cue = rest.split(r"\? ")
    pattern = rf"\[user\] {intro}\n{head}\? \[end\]\n\[assistant\] {cue}"
    for document in make_documents(Passkey(chat=True), prose_config, chat_tokenizer, 500, range(9)):
        assert len(document.tokens) == 501
        assert re.fullmatch(pattern, chat_tokenizer.decode(document.tokens))
    with pytest.raises(ValueError, match="no chat template"):
        make_documents(Passkey(chat=True), prose_config, prompt_tokenizer, 500, range(1))


@pytest.mark.hf
def test_needles_are_asked_for_in_a_chat(prose_config, chat_tokenizer):
    task = ChatNeedles(needles=3, nearest=300)
    for document in make_documents(task, prose_config, chat_tokenizer, 1500, range(9)):
        text = chat_tokenizer.decode(document.tokens)
        needles = re.findall(r"magic numbers for (\S+) is: (\d{7})\.\n", text)
        question = r"What is the special magic number for (\S+) mentioned in the provided text\?"
        answer = r"The special magic number for \1 mentioned in the provided text is (\d+)"
        turns = re.findall(rf"{question} \[end\]\n\[assistant\] {answer}", text)
        assert sorted(turns) == sorted(needles) and len(dict(turns)) == 3
        for start, count, distance in document.answers.tolist():
            source = start - 1 - distance
            number = document.tokens[start : start + count]
            np.testing.assert_array_equal(document.tokens[source : source + count], number)
            assert distance >= 250 and chat_tokenizer.decode(number) in dict(turns).values()
    documents = make_documents(ChatNeedles(needles=5), prose_config, chat_tokenizer, 4000, range(9))
    octaves = np.log2(np.concatenate([document.answers[:, 2] for document in documents]))
    assert octaves.min() < 9 and octaves.max() > 11
