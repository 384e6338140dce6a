import pytest

from ropewalk.data import tokenizer as tokenizer_lib
from ropewalk.data.tokenizer import Tokenizer
from tests.data.helpers import plain_text, train_llama_like


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory) -> Tokenizer:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.model"
    tokenizer_lib.train([plain_text(i) for i in range(200)], path, 600)
    return Tokenizer(path)


@pytest.fixture(scope="session")
def llama_like(tmp_path_factory) -> Tokenizer:
    texts = (plain_text(i, 200) + chr(0x4E00 + i) * 9 for i in range(300))
    options = dict(character_coverage=1.0, split_digits=True, required_chars="0123456789")
    return train_llama_like(texts, tmp_path_factory.mktemp("llama"), 900, **options)
