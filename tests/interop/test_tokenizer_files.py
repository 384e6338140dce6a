"""Tokenizer files that we write, against transformers: `make test-hf`."""

import json
from pathlib import Path

import pytest

from ropewalk.data import tokenizer as tokenizer_lib
from ropewalk.data.tokenizer import Tokenizer
from ropewalk.interop.architectures import ARCHITECTURES
from ropewalk.interop.tokenizer_files import find_tokenizer, write_tokenizer
from tests.data import json_tokenizers
from tests.data.hard_text import SOURCES, hard_text
from tests.data.helpers import train_llama_like


@pytest.fixture(scope="module", params=["ours", "llamas"])
def tokenizer(request, tmp_path_factory) -> Tokenizer:
    """Ours, and one with Llama's settings: a space before a text, no user-defined pieces."""
    folder = tmp_path_factory.mktemp("tokenizer")
    if request.param == "ours":
        tokenizer_lib.train(SOURCES, folder / "t.model", 2000)
        return Tokenizer(folder / "t.model")
    lines = [line for text in SOURCES for line in text.split("\n") if line and "\0" not in line]
    lines += [chr(0x4E00 + i) * 9 for i in range(300)]
    options = dict(split_digits=True, allow_whitespace_only_pieces=True)
    return train_llama_like(lines, folder, 2000, character_coverage=1.0, **options)


def exported(tokenizer: Tokenizer, folder: Path, model_type: str):
    """Return the tokenizer that transformers loads from a folder with a model of this type."""
    transformers = pytest.importorskip("transformers")
    write_tokenizer(tokenizer, folder)
    config = {"model_type": model_type, "architectures": ["Model"]}
    (folder / "config.json").write_text(json.dumps(config))
    return transformers.AutoTokenizer.from_pretrained(folder)


def ids(theirs, text: str) -> list[int]:
    return theirs(text, add_special_tokens=False)["input_ids"]


@pytest.mark.hf
def test_ids_at_the_start_of_a_text(tokenizer, tmp_path):
    theirs = exported(tokenizer, tmp_path, "llama")
    for text in ("", " ", "a", " a", "\u2581", "\u2581a", "\n", "<key_1>x", "<s>"):
        assert ids(theirs, text) == tokenizer.encode(text), repr(text)
        assert theirs(text)["input_ids"] == [tokenizer.bos_id, *tokenizer.encode(text)]


@pytest.mark.hf
@pytest.mark.parametrize("model_type", sorted(ARCHITECTURES.keys() - {"qwen2"}))
def test_transformers_has_the_ids_of_our_tokenizer(tokenizer, tmp_path, model_type):
    """In transformers 5 the type of the model can change the tokenizer's class."""
    size = 1_000_000 if model_type == "llama" else 5000
    theirs, text = exported(tokenizer, tmp_path, model_type), hard_text(size)
    assert ids(theirs, text) == tokenizer.encode(text)
    assert theirs.decode(ids(theirs, text)) == tokenizer.decode(tokenizer.encode(text))
    assert (theirs.bos_token_id, theirs.eos_token_id) == (tokenizer.bos_id, tokenizer.eos_id)
    assert len(theirs) == tokenizer.vocab_size


@pytest.mark.hf
@pytest.mark.parametrize(
    ("publisher", "model_type"),
    [("llama3", "llama"), ("qwen", "qwen2"), ("qwen", "qwen3"), ("gpt2", "llama")],
)
def test_imported_tokenizers_are_exported(publisher, model_type, tmp_path):
    """An imported tokenizer.json is exported with the same ids, and BOS before a text."""
    came = Tokenizer(json_tokenizers.MADE[publisher](SOURCES, tmp_path / "in"))
    theirs, text = exported(came, tmp_path / "out", model_type), hard_text(200_000) + "<think>"
    assert ids(theirs, text) == came.encode(text)
    assert theirs("the cat")["input_ids"] == [came.bos_id, *came.encode("the cat")]
    assert (theirs.bos_token_id, theirs.eos_token_id) == (came.bos_id, came.eos_id)
    again = Tokenizer(find_tokenizer(tmp_path / "out"))
    assert again.encode(text) == came.encode(text)
    assert (again.bos_id, again.eos_id) == (came.bos_id, came.eos_id)


def test_file_with_more_ids_is_read(tokenizer, tmp_path):
    write_tokenizer(tokenizer, tmp_path)
    assert find_tokenizer(tmp_path) == tmp_path / "tokenizer.model"
    assert Tokenizer(find_tokenizer(tmp_path)) == tokenizer
    file = json.loads((tmp_path / "tokenizer.json").read_text())
    added = file["added_tokens"][0] | {"id": tokenizer.vocab_size, "content": "<pad>"}
    file["added_tokens"].append(added)
    (tmp_path / "tokenizer.json").write_text(json.dumps(file))
    assert find_tokenizer(tmp_path) == tmp_path / "tokenizer.json"
    (tmp_path / "tokenizer.model").write_text("IQ== 0\n")  # as Llama 3's own
    assert find_tokenizer(tmp_path) == tmp_path / "tokenizer.json"


@pytest.mark.hf
def test_written_tokenizer_json_is_read_back(tokenizer, tmp_path):
    """Only from tokenizer.json."""
    write_tokenizer(tokenizer, tmp_path)
    again, text = Tokenizer(tmp_path / "tokenizer.json"), hard_text(100_000)
    assert again.encode(text) == tokenizer.encode(text)
    assert again.encode(text, inside=True) == tokenizer.encode(text, inside=True)
    assert again.piece_bytes == tokenizer.piece_bytes
    assert again.adds_space == tokenizer.adds_space
    for name in ("keys", "values", "fillers"):
        assert getattr(again, name).tolist() == getattr(tokenizer, name).tolist()
