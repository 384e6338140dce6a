"""Tokenizers that cannot travel."""

from pathlib import Path

from sentencepiece import sentencepiece_model_pb2

from data.tokenizer import Tokenizer
from interop.tokenizer_files import write_tokenizer
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


ROWS = [
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
