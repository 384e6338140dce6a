"""Chat templates and special pieces, against transformers (`make test-hf`)."""

import json

import pytest

from ropewalk.data import chat
from ropewalk.data.tokenizer import Tokenizer
from tests.data import json_tokenizers
from tests.data.hard_text import SOURCES

# ChatML, as Qwen and SmolLM2 have it.
TEMPLATE = (
    "{% for message in messages %}\n"
    "{% if loop.first and message['role'] != 'system' %}<|im_start|>system\nBe kind.<|im_end|>\n"
    "{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
MESSAGES = [
    {"role": "user", "content": "What is 2 + 2?"},
    {"role": "assistant", "content": "4"},
    {"role": "user", "content": "Wrong. <|im_start|>"},
]
pytestmark = pytest.mark.hf


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = json_tokenizers.MADE["qwen"]([*SOURCES, "0123456789"], tmp_path_factory.mktemp("chat"))
    return path.parent


@pytest.fixture
def tokenizer(folder) -> Tokenizer:
    return Tokenizer(folder / "tokenizer.json", chat_template=TEMPLATE)


@pytest.fixture(scope="module")
def theirs(folder):
    transformers = pytest.importorskip("transformers")
    names = {"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>", "chat_template": TEMPLATE}
    file = str(folder / "tokenizer.json")
    return transformers.PreTrainedTokenizerFast(tokenizer_file=file, **names)


def test_prompts_are_those_of_transformers(tokenizer, theirs):
    text = theirs.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=True)
    assert chat.render(tokenizer, MESSAGES) == text
    ids = theirs.apply_chat_template(MESSAGES, add_generation_prompt=True, return_dict=False)
    assert tokenizer.encode(text, special=True) == ids
    assert tokenizer.encode_prompt(text) == [tokenizer.bos_id, *ids]
    assert tokenizer.encode_prompt("<|endoftext|>" + text) == [tokenizer.bos_id, *ids]


def test_turns_join_to_the_prompt(tokenizer, theirs):
    turns = chat.turns(tokenizer)
    contents = [tokenizer.encode(message["content"], inside=True) for message in MESSAGES[:2]]
    ids = [*turns.before, *contents[0], *turns.to_answer, *contents[1], *turns.to_question]
    messages = [*MESSAGES[:2], {"role": "user", "content": ""}]
    text = theirs.apply_chat_template(messages, tokenize=False)
    expected = text.removesuffix("<|im_end|>\n")
    assert ids == [tokenizer.bos_id, *theirs(expected, add_special_tokens=False)["input_ids"]]


def test_templates_are_read_from_either_file(tmp_path):
    assert chat.read_template(tmp_path) is None
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": "a"}))
    assert chat.read_template(tmp_path) == "a"
    named = [{"name": "tool_use", "template": "{{ 1 }}"}, {"name": "default", "template": "c"}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    assert chat.read_template(tmp_path) == "c"
    (tmp_path / "chat_template.jinja").write_text("b")
    assert chat.read_template(tmp_path) == "b"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (None, "no chat template"),
        ("{{ raise_exception('only system') }}", "does not work: .*only system"),
        ("{% for %}", "does not work"),
        ("{{ messages[0]['content'] }}", "every message once"),
    ],
)
def test_templates_that_do_not_work_are_errors(folder, template, message):
    tokenizer = Tokenizer(folder / "tokenizer.json", chat_template=template)
    with pytest.raises(ValueError, match=message):
        chat.turns(tokenizer)
