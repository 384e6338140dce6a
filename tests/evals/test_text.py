"""Bytes and words of answers, and the text that tasks share."""

import numpy as np
import pytest
import sentencepiece

from ropewalk.data.config import DataConfig
from ropewalk.data.pipeline import check_data
from ropewalk.data.prepare import make_plan
from ropewalk.data.tokenizer import Tokenizer
from ropewalk.evals import text
from ropewalk.utils.messages import print_note
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


def test_a_tokenizer_that_changes_texts_is_named_before_training(tmp_path, capsys):
    """SentencePiece's default flags make one space of line ends, tabs and runs of spaces."""
    options = dict(model_prefix=f"{tmp_path}/m", vocab_size=300, minloglevel=2)
    lines = iter(["two words, ended by one", "other lines and white space"] * 9)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=lines, model_type="bpe", byte_fallback=True, **options
    )
    model = f"{tmp_path}/m.model"
    config = DataConfig(source="local", tokenizer=model, context_length=8, batch_size=1)
    for read in (check_data, make_plan):  # of training and of `ropewalk prepare`
        print_note.cache_clear()
        read(config)
        assert r"does not keep every text ('  a  b\n\n\tc\r\n" in capsys.readouterr().err
