import pickle

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ropewalk.data import tokenizer as tokenizer_lib
from ropewalk.data.tokenizer import Tokenizer
from tests.data.helpers import plain_text


@settings(deadline=None)
@given(text=st.text(max_size=40))
def test_decoding_gives_back_any_text(tokenizer, text):
    """U+2581, which SentencePiece reserves, tabs, newlines and unseen scripts must survive."""
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_training_survives_an_alphabet_larger_than_the_vocabulary(tmp_path):
    texts = ["".join(chr(0x4E00 + (7 * i + j) % 5000) for j in range(200)) for i in range(100)]
    texts += [plain_text(i) for i in range(50)]
    tokenizer_lib.train(texts, tmp_path / "t", 600)
    tokenizer = Tokenizer(tmp_path / "t")
    assert tokenizer.decode(tokenizer.encode(texts[3])) == texts[3]


def test_a_foreign_tokenizer_uses_ordinary_pieces_as_symbols(llama_like):
    ids = np.concatenate([llama_like.keys, llama_like.values, llama_like.fillers])
    assert len(np.unique(ids)) == len(ids) == 900 - 3 - 256
    np.testing.assert_array_equal(llama_like.keys, pickle.loads(pickle.dumps(llama_like)).keys)


def test_digits_stay_apart_in_text_full_of_numbers(tmp_path):
    years = [f"{plain_text(i)} in 1999, 1999, 2024 and 2024" for i in range(200)]
    tokenizer_lib.train(years, tmp_path / "t", 600)
    tokenizer = Tokenizer(tmp_path / "t")
    ids = tokenizer.digit_ids
    assert (ids.shape, ids.dtype) == ((10,), np.int32)
    assert tokenizer.encode("1999") == ids[[1, 9, 9, 9]].tolist()
