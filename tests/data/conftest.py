import pytest

from data import tokenizer as tokenizer_lib
from data.tokenizer import Tokenizer
from tests.data.helpers import plain_text


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory) -> Tokenizer:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.model"
    tokenizer_lib.train([plain_text(i) for i in range(200)], path, 600)
    return Tokenizer(path)
