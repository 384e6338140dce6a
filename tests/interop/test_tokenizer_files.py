"""Tokenizer files that we write, against what transformers makes of them: `make test-hf`."""

import json
import random
import sysconfig
from pathlib import Path

import pytest
import sentencepiece

from data import tokenizer as tokenizer_lib
from data.tokenizer import Tokenizer
from interop.tokenizer_files import write_tokenizer

LIBRARY = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[:40]
SOURCES = [path.read_text(encoding="utf-8", errors="ignore") for path in LIBRARY]
EMOJI = "😀👩‍👩‍👧‍👦🏳️‍🌈é́ñ"
ODD = ["<s>", "</s>", "<unk>", "<0x41>", "<0xE2>", "<key_1>", "<key_70>", "\0", "\t\n", "\r\n"]


@pytest.fixture(scope="module", params=["ours", "llamas"])
def tokenizer(request, tmp_path_factory) -> Tokenizer:
    """Ours, and one with Llama's settings: a space before the text, nothing of a user's."""
    path = tmp_path_factory.mktemp("tokenizer") / "t"
    if request.param == "ours":
        tokenizer_lib.train(SOURCES, path.with_suffix(".model"), 2000)
    else:
        lines = [line for text in SOURCES for line in text.split("\n") if line and "\0" not in line]
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([*lines, *(chr(0x4E00 + i) * 9 for i in range(300))]),
            model_prefix=str(path),
            model_type="bpe",
            vocab_size=2000,
            character_coverage=1.0,
            byte_fallback=True,
            split_digits=True,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            allow_whitespace_only_pieces=True,
            minloglevel=2,
        )
    return Tokenizer(path.with_suffix(".model"))


def hard_text(size: int) -> str:
    """`size` bytes of real text between runs of spaces, U+2581, control pieces, rare scripts."""
    draw = random.Random(0)

    def stretch() -> str:
        text = draw.choice(SOURCES)
        start = draw.randrange(len(text))
        return text[start : start + 200]

    kinds = [
        lambda: " " * draw.randrange(1, 60),
        lambda: "\u2581" * draw.randrange(1, 5),
        lambda: "".join(chr(draw.randrange(1, 0x3000)) for _ in range(8)),
        lambda: "".join(draw.choice(EMOJI) for _ in range(6)),
        lambda: "a" + "\u0301" * draw.randrange(1, 4),
        lambda: draw.choice(ODD),
        stretch,
        stretch,
    ]
    parts, written = [], 0
    while written < size:
        parts.append(draw.choice(kinds)())
        written += len(parts[-1].encode())
    return "".join(parts)


def exported(tokenizer: Tokenizer, folder: Path, model_type: str):
    """What transformers loads of a folder with a model of that type."""
    transformers = pytest.importorskip("transformers")
    write_tokenizer(tokenizer, folder)
    config = {"model_type": model_type, "architectures": ["Model"]}
    (folder / "config.json").write_text(json.dumps(config))
    return transformers.AutoTokenizer.from_pretrained(folder)


def ids(theirs, text: str) -> list[int]:
    return theirs(text, add_special_tokens=False)["input_ids"]


@pytest.mark.hf
def test_transformers_gives_the_same_ids_of_a_megabyte(tokenizer, tmp_path):
    theirs, text = exported(tokenizer, tmp_path, "llama"), hard_text(1_000_000)
    assert ids(theirs, text) == tokenizer.encode(text)
    assert theirs.decode(ids(theirs, text)) == tokenizer.decode(tokenizer.encode(text))


@pytest.mark.hf
@pytest.mark.parametrize("text", ["", " ", "a", " a", "\u2581", "\u2581a", "\n", "<key_1>x", "<s>"])
def test_the_start_of_a_text_is_the_same(tokenizer, tmp_path, text):
    theirs = exported(tokenizer, tmp_path, "llama")
    assert ids(theirs, text) == tokenizer.encode(text)
    assert theirs(text)["input_ids"] == [tokenizer.bos_id, *tokenizer.encode(text)]


@pytest.mark.hf
@pytest.mark.parametrize(
    "model_type",
    ["llama", "mistral", "ministral", "qwen3", "smollm3", "deepseek_v3", "mellum", "phi3"],
)
def test_no_model_brings_a_tokenizer_of_its_own(tokenizer, tmp_path, model_type):
    """In transformers 5 the type of the model may decide the tokenizer's class."""
    theirs, text = exported(tokenizer, tmp_path, model_type), hard_text(5000)
    assert ids(theirs, text) == tokenizer.encode(text)
    assert (theirs.bos_token_id, theirs.eos_token_id) == (tokenizer.bos_id, tokenizer.eos_id)
    assert len(theirs) == tokenizer.vocab_size


@pytest.mark.hf
def test_qwen2_does(tokenizer, tmp_path):
    """Why it is refused; once it loads ours as it is, the refusal may go."""
    theirs = exported(tokenizer, tmp_path, "qwen2")
    assert ids(theirs, "a b") != tokenizer.encode("a b") or ids(theirs, "\n") == [0]
