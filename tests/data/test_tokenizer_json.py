"""`tokenizer.json` as a run's tokenizer, compared with `tokenizers` and with transformers."""

import json
import pickle
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import tokenizers

from ropewalk.data.pipeline import open_data
from ropewalk.data.prepare import prepare
from ropewalk.data.tokenizer import Tokenizer
from ropewalk.data.verify import verify
from ropewalk.evals.text import read_texts, sizes
from tests.data import json_tokenizers
from tests.data.hard_text import SOURCES, hard_text
from tests.data.helpers import make_config, plain_text, write_jsonl

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=json_tokenizers.MADE)
def path(request, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp(request.param) / request.param
    return json_tokenizers.MADE[request.param](SOURCES[:12], folder)


def reference(path: Path):
    transformers = pytest.importorskip("transformers")
    return transformers.PreTrainedTokenizerFast(tokenizer_file=str(path), split_special_tokens=True)


@pytest.mark.hf
def test_ids_are_transformers(path):
    text = hard_text(1_000_000)
    ids = Tokenizer(path).encode(text)
    assert ids == reference(path)(text, add_special_tokens=False)["input_ids"]


def test_pieces_have_the_bytes_of_the_text(path):
    """Bits per byte count these bytes, wherever a text is cut."""
    tokenizer, text = Tokenizer(path), hard_text(200_000)
    if path.parent.name == "qwen":
        text = unicodedata.normalize("NFC", text)
    if path.parent.name == "gemma3":
        text = text.replace("\u2581", " ")  # this character is its space
    ids = tokenizer.encode(text)
    pieces = [tokenizer.piece_bytes[i] for i in ids]
    assert b"".join(pieces) == text.encode()
    assert tokenizer.decode(ids) == text
    assert not tokenizer.adds_space
    counted = sizes(tokenizer, np.array([tokenizer.bos_id, *ids]))[1:]
    assert counted.sum(axis=0).tolist() == [len(text.encode()), len(text.encode().split())]


@pytest.mark.hf
def test_bos_and_eos_are_the_published_ones(path):
    tokenizer, names = Tokenizer(path), reference(path).convert_ids_to_tokens
    expected = {
        "llama3": ["<|begin_of_text|>", "<|end_of_text|>"],
        "qwen": ["<|endoftext|>", "<|im_end|>"],
        "gpt2": ["<|endoftext|>", "<|endoftext|>"],
        "gemma3": ["<bos>", "<eos>"],
    }
    assert names([tokenizer.bos_id, tokenizer.eos_id]) == expected[path.parent.name]
    for i in (tokenizer.bos_id, tokenizer.eos_id):
        assert tokenizer.piece_bytes[i] == b""
        assert i not in tokenizer.encode(f"a {names(i)} b")
    assert tokenizer.vocab_size == len(reference(path))


def test_a_file_that_was_completed_stands_alone(path, tmp_path):
    """A run keeps one file, and `tokenizers` must encode a document with it as we do."""
    tokenizer, alone = Tokenizer(path), tmp_path / "tokenizer.json"
    alone.write_bytes(tokenizer.model)
    ids = tokenizer.encode("the cat")
    again = Tokenizer(alone, sha256=tokenizer.fingerprint)
    for copy in (again, pickle.loads(pickle.dumps(tokenizer))):
        assert copy == tokenizer and hash(copy) == hash(tokenizer) and copy.encode("the cat") == ids
        assert (copy.bos_id, copy.eos_id) == (tokenizer.bos_id, tokenizer.eos_id)
    document = tokenizers.Tokenizer.from_file(str(alone)).encode("the cat").ids
    assert document == [tokenizer.bos_id, *ids, tokenizer.eos_id]


def test_data_is_prepared_with_it(path, tmp_path):
    """BOS occurs only at the start of documents, even if it is also EOS."""
    texts = [plain_text(number) for number in range(300)]
    write_jsonl(tmp_path / "in" / "a.jsonl", texts)
    config = make_config(tmp_path, tokenizer=str(path), context_length=32)
    folder, tokenizer = prepare(config), Tokenizer(path)
    assert (folder / "tokenizer.json").read_bytes() == tokenizer.model
    assert not (folder / "tokenizer.model").exists()
    assert verify(folder) == []
    data = open_data(config)
    assert data.tokenizer_path == folder / "tokenizer.json"
    row = data.open_rows("train")[0]
    starts = np.flatnonzero(row["tokens"][1:] == tokenizer.bos_id) + 1
    np.testing.assert_array_equal(np.flatnonzero(row["positions"][1:] == 0) + 1, starts)
    ids = read_texts(str(tmp_path / "in"), tokenizer).ids  # as for an evaluation
    assert np.count_nonzero(ids == tokenizer.bos_id) == len(texts)
    (folder / "tokenizer.json").write_bytes(tokenizer.model.replace(b"the", b"teh", 1))
    with pytest.raises(ValueError, match=r"tokenizer\.json: damaged"):
        open_data(config)


def save(tokenizer, path: Path, **names) -> Tokenizer:
    """Save a tokenizer of `tokenizers` with a config that has some names, and open it."""
    tokenizer.save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text(json.dumps(names))
    return Tokenizer(path / "tokenizer.json")


def test_a_tokenizer_that_draws_its_ids_is_refused(path, tmp_path):
    """BPE dropout would give other ids at every call."""
    expected, drawn = Tokenizer(path), tokenizers.Tokenizer.from_file(str(path))
    end = expected.name_of(expected.eos_id)
    drawn.model.dropout = 0.1
    with pytest.raises(ValueError, match=r"model\.dropout=0\.1.*set it to null"):
        save(drawn, tmp_path, eos_token=end)
    drawn.model.dropout = 0.0
    assert save(drawn, tmp_path, eos_token=end).encode("the cat") == expected.encode("the cat")


def test_an_end_of_text_that_is_a_plain_piece_is_in_no_text(path, tmp_path):
    """Some chat models add their end of a turn as a piece that is not special."""
    chat, name = tokenizers.Tokenizer.from_file(str(path)), "<end_of_turn>"
    chat.add_tokens([name])
    ends = tokenizers.processors.TemplateProcessing(
        single=f"{name} $A {name}", special_tokens=[(name, chat.token_to_id(name))]
    )
    for post_processor in (chat.post_processor, ends):  # the config names the piece, or the file
        chat.post_processor = post_processor
        tokenizer = save(chat, tmp_path, eos_token=name)
        assert tokenizer.name_of(tokenizer.eos_id) == name
        assert tokenizer.eos_id not in tokenizer.encode(f"a {name} b")
        assert tokenizer.piece_bytes[tokenizer.eos_id] == b""
