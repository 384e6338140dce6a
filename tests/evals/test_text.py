"""Bytes and words of answers, and the text that tasks share."""

import numpy as np
import pytest

from ropewalk.data.tokenizer import Tokenizer
from ropewalk.evals import text
from tests.data.helpers import train_llama_like

TEXTS = (
    "two words",
    "  led by spaces, ended by one ",
    "\n\r\nlines\tand\vother \f white\x0bspace\n",
    "é ü 漢字 🙂 a\u00a0b c\u2003d",  # only ASCII separates words
    "a \u2581 b\u2581c",  # what SentencePiece writes for a space, as itself
    "<key_3> <value_7>x",
    "12345 6 7\n\n\n8",
)


@pytest.fixture(scope="module")
def llama_like(tmp_path_factory) -> Tokenizer:
    texts = ["two words, ended by one", "other lines and white space"]
    return train_llama_like(texts, tmp_path_factory.mktemp("llama"), 310)


@pytest.mark.parametrize("name", ["tokenizer", "llama_like"])
@pytest.mark.parametrize("string", TEXTS)
def test_sizes_of_a_document_are_those_of_its_text(name, string, request):
    tokenizer = request.getfixturevalue(name)
    ids = np.array([tokenizer.bos_id, *tokenizer.encode(string), tokenizer.eos_id])
    result = text.sizes(tokenizer, ids)
    encoded = string.encode()
    assert result.sum(axis=0).tolist() == [len(encoded), len(encoded.split())]
    # Cut anywhere, a part has the words that start in it.
    decoded = b"".join(tokenizer.piece_bytes[i] for i in ids)[int(tokenizer.adds_space) :]
    assert decoded == encoded
    for cut in range(len(ids)):
        num_bytes, num_words = result[:cut].sum(axis=0)
        assert num_words == len(encoded[:num_bytes].split())
