"""Tokenizer files that transformers loads, with the ids of ours.

transformers would make its own of a `tokenizer.model`, and not quite: it takes a real U+2581 for a
space, leaves `<s>` in a text as BOS, and forgets that our texts begin without a space. So a
`tokenizer.json` is written that says what ours does, and a class that takes it as it is.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data.tokenizer import FILE_NAMES, Tokenizer
from data.tokenizer_json import template, vocabulary_of
from utils.files import write_atomically

_SPACE = "\u2581"  # what SentencePiece writes for a space inside pieces
# transformers 5 loads its own class for these, whatever tokenizer_config.json says
# (MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS), and that splits texts as those models' own does.
# Each with what tells a file of theirs.
_OWN_CLASS = {"qwen2": json.dumps(r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+")[1:-1]}
_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


def read_tokenizer(folder: str | Path) -> Path:
    """The file of a published folder that `data.tokenizer.Tokenizer` reads.

    A run keeps it by `(run.path / tokenizer.file_name).write_bytes(tokenizer.model)`.

    Returns:
      `tokenizer.model`, but `tokenizer.json` if there is no other, if the other is no SentencePiece
      model (Llama 3's is not), or if it has fewer ids: pieces added since are in the JSON only.

    Raises:
      ValueError: if there is neither.
    """
    model, json_file = (Path(folder) / name for name in FILE_NAMES)
    if not model.exists() and not json_file.exists():
        raise ValueError(f"{folder}: no tokenizer there (neither {' nor '.join(FILE_NAMES)})")
    if not json_file.exists():
        return model
    try:
        file = json.loads(json_file.read_text(encoding="utf-8"))
        if Tokenizer(model).vocab_size > max(vocabulary_of(file).values()):
            return model
    except (ValueError, KeyError, TypeError, AttributeError):
        pass  # what is wrong with the one that is returned, its reader says
    return json_file


def write_tokenizer(tokenizer: Tokenizer, folder: str | Path) -> None:
    """Writes tokenizer.json, tokenizer_config.json and special_tokens_map.json.

    And `tokenizer.model`, of a SentencePiece model. transformers' AutoTokenizer then gives the ids
    of `tokenizer.encode`, after a BOS: documents of training begin with one, and end with an EOS
    that it does not add.

    Args:
      tokenizer: a run's.
      folder: where the model's `config.json` lies, or will: if it is there, it is looked at.

    Raises:
      ValueError: if no tokenizer.json can say what this SentencePiece model does, or transformers
        would load another tokenizer for this type of model.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if tokenizer.file_name == "tokenizer.json":
        file = json.loads(tokenizer.model)
        vocabulary = vocabulary_of(file)
    else:
        proto = _read(tokenizer)
        file = _tokenizer_json(proto)
        vocabulary = {piece.piece: i for i, piece in enumerate(proto.pieces)}
    _check_class(folder, file)
    names = {i: name for name, i in vocabulary.items()}
    special = {"bos_token": names[tokenizer.bos_id], "eos_token": names[tokenizer.eos_id]}
    if unknown := file["model"].get("unk_token"):
        special["unk_token"] = unknown
    file["post_processor"] = template([special["bos_token"]], [], vocabulary)
    # Written in one line each: a list of merges with one a line is three times as long.
    for name, content in zip(_FILES, (file, _tokenizer_config(special), special), strict=True):
        write_atomically(folder / name, json.dumps(content, ensure_ascii=False) + "\n")
    if tokenizer.file_name == "tokenizer.model":
        write_atomically(folder / "tokenizer.model", tokenizer.model)


def _check_class(folder: Path, file: dict[str, Any]) -> None:
    if (folder / "config.json").exists():
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        kind = config.get("model_type")
        if kind in _OWN_CLASS and _OWN_CLASS[kind] not in json.dumps(file["pre_tokenizer"]):
            raise ValueError(
                f"{folder}: transformers 5 loads no tokenizer but {kind}'s own beside a {kind} "
                "model; export the model as another type, or without its tokenizer"
            )


def _tokenizer_config(special: dict[str, str]) -> dict[str, Any]:
    return {
        # Takes tokenizer.json as it is. LlamaTokenizer would put its own normalizer in.
        "tokenizer_class": "PreTrainedTokenizerFast",
        **special,
        "add_bos_token": True,
        "add_eos_token": False,
        # `</s>` written in a text is four characters, as it was in training.
        "split_special_tokens": True,
        "clean_up_tokenization_spaces": False,
    }


def _read(tokenizer: Tokenizer) -> Any:
    """The model's protocol buffer, if a tokenizer.json can say what it does."""
    from sentencepiece import sentencepiece_model_pb2

    proto = sentencepiece_model_pb2.ModelProto.FromString(  # pyright: ignore[reportAttributeAccessIssue]
        tokenizer.model
    )
    if why := _why_not(proto):
        raise ValueError(f"this tokenizer cannot be written as a tokenizer.json: {why}")
    return proto


def _why_not(proto: Any) -> str | None:
    trainer, normalizer, pieces = proto.trainer_spec, proto.normalizer_spec, proto.pieces
    if trainer.model_type != trainer.BPE:
        return "it is not a BPE model"
    if normalizer.precompiled_charsmap or normalizer.remove_extra_whitespaces:
        return "it changes texts (its normalizer is not the identity)"
    if trainer.treat_whitespace_as_suffix or not normalizer.escape_whitespaces:
        return "it puts spaces after words, or leaves them as they are"
    if sum(piece.type == piece.BYTE for piece in pieces) != 256:
        return "it has no pieces for bytes"
    if any(piece.type == piece.UNUSED for piece in pieces):
        return "it has pieces that are never used"
    if normalizer.add_dummy_prefix and any(p.type == p.USER_DEFINED for p in pieces):
        # The `tokenizers` library would put the space after each of these pieces too.
        return "it puts a space before a text and has pieces of a user's"
    normal = {piece.piece for piece in pieces if piece.type == piece.NORMAL}
    if set("".join(normal)) - normal:
        return "it has pieces of characters that are no piece"
    scores = [piece.score for piece in _merged(proto)]
    if len(set(scores)) != len(scores):
        return "two of its pieces have one score, so what is merged first is not said"
    return None


def _merged(proto: Any) -> Iterator[Any]:
    """Pieces that merges make."""
    return (p for p in proto.pieces if p.type == p.NORMAL and len(p.piece) > 1)


def _tokenizer_json(proto: Any) -> dict[str, Any]:
    """All of the file but its post-processor."""
    # With spaces for U+2581 in all pieces a real U+2581 is in none, and so is coded as bytes.
    names = [piece.piece.replace(_SPACE, " ") for piece in proto.pieces]
    adds_space = proto.normalizer_spec.add_dummy_prefix
    last = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if adds_space else []
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": list(_added_tokens(proto, names)),
        # As `encode`: none before an empty text, nor before a U+2581, which it codes by itself.
        "normalizer": {
            "type": "Replace",
            "pattern": {"Regex": rf"\A(?=[^{_SPACE}])"},
            "content": " ",
        }
        if adds_space
        else None,
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {
            "type": "Sequence",
            "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}, *last],
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": next(p.piece for p in proto.pieces if p.type == p.UNKNOWN),
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": {name: i for i, name in enumerate(names)},
            "merges": _merges(proto),
        },
    }


def _added_tokens(proto: Any, names: list[str]) -> Iterator[dict[str, Any]]:
    """Special pieces, which no text has, and those of a user's, which are found before merging."""
    for i, piece in enumerate(proto.pieces):
        if piece.type in (piece.CONTROL, piece.UNKNOWN, piece.USER_DEFINED):
            yield {
                "id": i,
                "content": names[i],
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": piece.type != piece.USER_DEFINED,
            }


def _merges(proto: Any) -> list[tuple[str, str]]:
    """Pairs of pieces, what is merged first first: SentencePiece merges to the highest score."""
    normal = {p.piece for p in proto.pieces if p.type == p.NORMAL}
    pairs = []
    for piece in sorted(_merged(proto), key=lambda p: -p.score):
        token = piece.piece
        for split in range(1, len(token)):
            left, right = token[:split], token[split:]
            if left in normal and right in normal:
                pairs.append((left.replace(_SPACE, " "), right.replace(_SPACE, " ")))
    return pairs
