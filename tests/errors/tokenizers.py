"""Tokenizers that cannot travel."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

from sentencepiece import sentencepiece_model_pb2

from data.tokenizer import Tokenizer
from interop.tokenizer_files import read_tokenizer, write_tokenizer
from tests.errors.table import Row
from tests.errors.texts import foreign

IDENTITY = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}


def changed(change) -> None:
    """Writes files of a tokenizer like Llama's with something of it changed."""
    proto = sentencepiece_model_pb2.ModelProto.FromString(  # pyright: ignore[reportAttributeAccessIssue]
        foreign(**IDENTITY).model
    )
    change(proto)
    Path("changed.model").write_bytes(proto.SerializeToString())
    write_tokenizer(Tokenizer("changed.model"), "out")


def _one_score(proto):
    first, second = [piece for piece in proto.pieces if len(piece.piece) == 2][:2]
    second.score = first.score


def _no_bytes(proto):
    proto.trainer_spec.byte_fallback = False
    for piece in proto.pieces:
        piece.type = piece.CONTROL if piece.type == piece.BYTE else piece.type


def _no_character(proto):
    piece = next(piece for piece in proto.pieces if piece.piece == "a")
    piece.type = piece.USER_DEFINED
    proto.normalizer_spec.add_dummy_prefix = False


def published(**changes) -> str:
    """A tokenizer.json of two pieces, which begin and end texts."""
    file = {
        "added_tokens": [{"id": i, "content": c, "special": True} for i, c in enumerate("<>")],
        "post_processor": None,
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": {"<": 0, ">": 1, "x": 2}, "merges": []},
    }
    return json.dumps(file | changes)


NAMED = json.dumps({"bos_token": "<", "eos_token": ">"})


def _library(vocabulary=None):
    """Put a stand-in for `tokenizers`: it reads no file, or gives pieces these ids."""

    def from_str(content):
        if vocabulary is None:
            raise Exception("expected a value\nat line 1")
        return SimpleNamespace(
            get_vocab=lambda with_added_tokens: vocabulary,
            no_truncation=lambda: None,
            no_padding=lambda: None,
        )

    library = SimpleNamespace(Tokenizer=SimpleNamespace(from_str=from_str))
    return lambda patch: patch.setitem(sys.modules, "tokenizers", library)


ROWS = [
    *(
        Row(
            lambda: Tokenizer("t/tokenizer.json"),
            says,
            files={"t/tokenizer.json": content, "t/tokenizer_config.json": NAMED},
            given=setup,
        )
        for content, setup, says in (
            ("{broken", _library(), "t/tokenizer.json: not a tokenizer.json"),
            ('{"model": {}}', _library(), "t/tokenizer.json: not a tokenizer.json"),
            (
                published(),
                lambda patch: patch.setitem(sys.modules, "tokenizers", None),
                "t/tokenizer.json: a tokenizer.json needs `tokenizers`: pip install tokenizers "
                "(or ropewalk's extra hf)",
            ),
            (
                published(),
                _library(),
                "t/tokenizer.json: `tokenizers` does not read this tokenizer.json: expected a "
                "value",
            ),
            (
                published(),
                _library({"<": 1, ">": 0, "x": 2}),
                "t/tokenizer.json: `tokenizers` gives '<' the id 1, and this tokenizer.json says 0",
            ),
            (
                published(decoder={"type": "WordPiece"}),
                _library(),
                "t/tokenizer.json: this tokenizer.json is of a kind that is not read (decoder "
                "WordPiece); byte-level and SentencePiece's are",
            ),
            (
                published(model={"vocab": {"x": 0}}, added_tokens=[]),
                _library(),
                "t/tokenizer.json: it has no piece '<', which should begin or end texts",
            ),
        )
    ),
    Row(
        lambda: Tokenizer("tokenizer.json"),
        "tokenizer.json: tokenizer has no BOS or no EOS; documents need both: put the "
        "tokenizer_config.json that names them beside it",
        files={"tokenizer.json": published(), "tokenizer_config.json": '{"bos_token": "<"}'},
    ),
    Row(
        lambda: read_tokenizer("run"),
        "run: no tokenizer there (neither tokenizer.model nor tokenizer.json)",
    ),
    *(
        Row(do, f"this tokenizer cannot be written as a tokenizer.json: {why}")
        for do, why in (
            (
                lambda: write_tokenizer(foreign(), "out"),
                "it changes texts (its normalizer is not the identity)",
            ),
            (
                lambda: write_tokenizer(foreign(treat_whitespace_as_suffix=True, **IDENTITY), "o"),
                "it puts spaces after words, or leaves them as they are",
            ),
            (
                lambda: changed(lambda p: setattr(p.trainer_spec, "model_type", 1)),
                "it is not a BPE model",
            ),
            (
                lambda: changed(_no_bytes),
                "it has no pieces for bytes",
            ),
            (
                lambda: changed(lambda p: setattr(p.pieces[-1], "type", p.pieces[-1].UNUSED)),
                "it has pieces that are never used",
            ),
            (
                lambda: write_tokenizer(foreign(user_defined_symbols=["<mark>"], **IDENTITY), "o"),
                "it puts a space before a text and has pieces of a user's",
            ),
            (
                lambda: changed(_one_score),
                "two of its pieces have one score, so what is merged first is not said",
            ),
            (lambda: changed(_no_character), "it has pieces of characters that are no piece"),
        )
    ),
    Row(
        lambda: write_tokenizer(foreign(**IDENTITY), "out"),
        "out: transformers 5 loads no tokenizer but qwen2's own beside a qwen2 model; "
        "export the model as another type, or without its tokenizer",
        files={"out/config.json": '{"model_type": "qwen2"}'},
    ),
]
