import pytest
import sentencepiece

from ropewalk.data import tokenizer as tokenizer_lib
from ropewalk.data.tokenizer import Tokenizer
from tests.data.helpers import plain_text


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory) -> Tokenizer:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.model"
    tokenizer_lib.train([plain_text(i) for i in range(200)], path, 600)
    return Tokenizer(path)


@pytest.fixture(scope="session")
def llama_like(tmp_path_factory) -> Tokenizer:
    """A tokenizer with Llama's settings: a space before the text, no reserved symbols."""
    path = tmp_path_factory.mktemp("llama") / "m"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(plain_text(i, 200) + chr(0x4E00 + i) * 9 for i in range(300)),
        model_prefix=str(path), model_type="bpe", vocab_size=900, character_coverage=1.0,
        byte_fallback=True, split_digits=True, normalization_rule_name="identity",
        remove_extra_whitespaces=False, required_chars="0123456789", minloglevel=2,
    )  # fmt: skip
    return Tokenizer(path.with_suffix(".model"))
