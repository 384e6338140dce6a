"""Write tokenizer files for transformers that give the same ids as ours.

transformers would convert a `tokenizer.model` itself, with differences: it converts U+2581 in a
text to a space, reads `<s>` in a text as BOS, and ignores that our texts begin without a space. So
we write a `tokenizer.json`, and name a class that uses it unchanged.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ropewalk.data.tokenizer import FILE_NAMES, Tokenizer
from ropewalk.data.tokenizer_json import read_settings, template, vocabulary_of
from ropewalk.utils.files import write_atomically
from ropewalk.utils.limits import parse_json, read_bytes, read_json
from ropewalk.utils.messages import one_line

_SPACE = "\u2581"  # SentencePiece's character for a space
_BPE = 2  # a type of models
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)  # types of pieces
# Types of models for which transformers 5 loads a tokenizer class of its own, whatever
# tokenizer_config.json names (MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS), and a text of the files
# that fit that class.
_OWN_CLASS = {"qwen2": json.dumps(r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+")[1:-1]}
_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
# Files of a published folder that an import keeps and an export writes again.
_PUBLISHED = (*FILE_NAMES, *_FILES[1:], "chat_template.jinja", "generation_config.json")
_PUBLISHED += ("LICENSE", "LICENSE.txt", "LICENSE.md", "NOTICE")


def read_published(folder: Path) -> dict[str, bytes]:
    """Return the tokenizer files, chat template, generation config and license of a folder.

    Ids that end a text in config.json become a generation config, if there is none.

    Raises:
      ValueError: for a link that leaves the folder: what it leads to would be published. Links of
        Hugging Face's cache, from `snapshots/REVISION` to `blobs`, are followed.
    """
    paths = [folder / name for name in _PUBLISHED]
    paths = [path for path in paths if path.exists()]
    root = folder.resolve()
    for path in paths:
        if path.resolve().parent not in (root, root.parent.parent / "blobs"):
            raise ValueError(f"{path} links to {path.resolve()}; put the file itself there")
    files = {path.name: read_bytes(path) for path in paths}
    if "generation_config.json" not in files and (folder / "config.json").exists():
        ids = read_json(folder / "config.json").get("eos_token_id")
        if isinstance(ids, int | list) and {*FILE_NAMES} & files.keys():
            files["generation_config.json"] = json.dumps({"eos_token_id": ids}).encode()
    return files


def write_published(files: Mapping[str, bytes], folder: Path, context: int | None) -> None:
    """Write the files of `read_published`.

    Args:
      files: content by name.
      folder: an existing folder.
      context: trained context, tokens, if it is not the published one.
    """
    for name, content in files.items():
        if name == "tokenizer_config.json" and context is not None:
            config = parse_json(content)
            if "model_max_length" in config:
                config["model_max_length"] = context
                content = (json.dumps(config, indent=2, ensure_ascii=False) + "\n").encode()
        (folder / name).write_bytes(content)


def drop_unused(content: bytes, num_ids: int) -> tuple[bytes, list[str]]:
    """Remove the added tokens of a tokenizer.json that a model has no embedding for.

    Args:
      content: bytes of the file.
      num_ids: ids that the model has.

    Returns:
      The new content, and the names of the removed tokens.
    """
    file = parse_json(content)
    added = file.get("added_tokens") or []
    dropped = [token["content"] for token in added if token["id"] >= num_ids]
    file["added_tokens"] = [token for token in added if token["id"] < num_ids]
    if isinstance(file["model"]["vocab"], dict):
        for name in dropped:
            file["model"]["vocab"].pop(name, None)
    return json.dumps(file, ensure_ascii=False).encode(), dropped


def puts_bos(path: Path, tokenizer: Tokenizer) -> bool:
    """Return whether transformers' tokenizer of a published file puts BOS before a text."""
    setting = read_settings(path.parent / "tokenizer_config.json").get("add_bos_token")
    if isinstance(setting, bool):
        return setting
    if tokenizer.file_name == "tokenizer.model":
        return True  # Llama's class does
    processor = json.dumps(read_json(path).get("post_processor"), ensure_ascii=False)
    return json.dumps(tokenizer.name_of(tokenizer.bos_id), ensure_ascii=False) in processor


def find_tokenizer(folder: str | Path) -> Path | None:
    """Return the file of a published folder that `data.tokenizer.Tokenizer` should read.

    Returns:
      `tokenizer.model`. But `tokenizer.json` if it is the only one, if the other is not a
      SentencePiece model (Llama 3), or if it has more ids (of pieces that were added later). None
      if there is neither.
    """
    model, json_file = (Path(folder) / name for name in FILE_NAMES)
    if not json_file.exists():
        return model if model.exists() else None
    try:
        file = read_json(json_file)
        if Tokenizer(model).vocab_size > max(vocabulary_of(file).values()):
            return model
    except (ValueError, KeyError, TypeError, AttributeError):
        pass  # `Tokenizer` reports what is wrong with the JSON file
    return json_file


def write_tokenizer(tokenizer: Tokenizer, folder: str | Path) -> None:
    """Write tokenizer.json, tokenizer_config.json and special_tokens_map.json.

    A SentencePiece model is also written as `tokenizer.model`. transformers' AutoTokenizer returns
    BOS and the ids of `tokenizer.encode`: documents of training begin with BOS, and the EOS at
    their end is not added.

    Args:
      tokenizer: tokenizer of a run.
      folder: folder of the model. Its config.json is read if it exists.

    Raises:
      ValueError: if a tokenizer.json cannot represent this SentencePiece model, or transformers
        would load another tokenizer for this type of model.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if tokenizer.file_name == "tokenizer.json":
        file = parse_json(tokenizer.model)
        vocabulary = vocabulary_of(file)
    else:
        proto = _parse_model(tokenizer.model)
        _check_model(proto)
        file = _tokenizer_json(proto)
        vocabulary = {piece.piece: i for i, piece in enumerate(proto.pieces)}
    _check_class(folder, file)
    names = {i: name for name, i in vocabulary.items()}
    special = {"bos_token": names[tokenizer.bos_id], "eos_token": names[tokenizer.eos_id]}
    if unknown := file["model"].get("unk_token"):
        special["unk_token"] = unknown
    file["post_processor"] = template([special["bos_token"]], [], vocabulary)
    tokenizer_config = {
        # Uses tokenizer.json unchanged; LlamaTokenizer would add its own normalizer.
        "tokenizer_class": "PreTrainedTokenizerFast",
        **special,
        "add_bos_token": True,
        "add_eos_token": False,
        # `</s>` in a text is four characters, as in training.
        "split_special_tokens": True,
        "clean_up_tokenization_spaces": False,
    }
    for name, content in zip(_FILES, (file, tokenizer_config, special), strict=True):
        write_atomically(folder / name, json.dumps(content, ensure_ascii=False) + "\n")
    if tokenizer.file_name == "tokenizer.model":
        write_atomically(folder / "tokenizer.model", tokenizer.model)


def _check_class(folder: Path, file: dict[str, Any]) -> None:
    if (folder / "config.json").exists():
        kind = read_json(folder / "config.json").get("model_type")
        if kind in _OWN_CLASS and _OWN_CLASS[kind] not in json.dumps(file["pre_tokenizer"]):
            raise ValueError(
                f"transformers 5 loads only {kind}'s own tokenizer for a {kind} model; "
                "export the model as another type, or without its tokenizer"
            )


def _parse_model(content: bytes) -> Any:
    """Return the message of a SentencePiece model."""
    try:
        from sentencepiece import sentencepiece_model_pb2 as schema
    except Exception as error:  # generated code starts with its own version of protobuf, or newer
        reason = one_line(str(error), 80)
        raise ValueError(
            f"sentencepiece needs a newer protobuf: pip install -U protobuf ({reason})"
        ) from None
    return schema.ModelProto.FromString(content)  # pyright: ignore[reportAttributeAccessIssue]


def _check_model(proto: Any) -> None:
    """Raise ValueError if a tokenizer.json cannot represent a SentencePiece model."""
    trainer, normalizer, pieces = proto.trainer_spec, proto.normalizer_spec, proto.pieces
    kinds = [piece.type for piece in pieces]
    normal = {piece.piece for piece in pieces if piece.type == _NORMAL}
    scores = [piece.score for piece in _merged(proto)]
    changes_texts = normalizer.precompiled_charsmap or normalizer.remove_extra_whitespaces
    puts_after = trainer.treat_whitespace_as_suffix or not normalizer.escape_whitespaces
    # The `tokenizers` library would also put a space after each of these pieces.
    adds_spaces = normalizer.add_dummy_prefix and _USER_DEFINED in kinds
    has_ties = len({*scores}) != len(scores)
    problems = {
        "it is not a BPE model": trainer.model_type != _BPE,
        "it changes texts (its normalizer is not the identity)": changes_texts,
        "it puts spaces after words, or does not replace them": puts_after,
        "it has no pieces for bytes": kinds.count(_BYTE) != 256,
        "it has unused pieces": _UNUSED in kinds,
        "it puts a space before a text and has user-defined pieces": adds_spaces,
        "it has pieces with characters that are not pieces": {*"".join(normal)} - normal,
        "pieces have the same score, so the order of merges is undefined": has_ties,
    }
    for problem, applies in problems.items():
        if applies:
            raise ValueError(f"this tokenizer cannot be written as a tokenizer.json: {problem}")


def _merged(proto: Any) -> Iterator[Any]:
    """Yield the pieces that result from merges."""
    return (p for p in proto.pieces if p.type == _NORMAL and len(p.piece) > 1)


def _tokenizer_json(proto: Any) -> dict[str, Any]:
    """Return the content of the file without a post-processor."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers

    # With U+2581 replaced in all pieces, a U+2581 in a text is encoded as bytes.
    names = [piece.piece.replace(_SPACE, " ") for piece in proto.pieces]
    unknown = next(piece.piece for piece in proto.pieces if piece.type == _UNKNOWN)
    vocab = {name: i for i, name in enumerate(names)}
    options: dict[str, Any] = dict(unk_token=unknown, fuse_unk=True, byte_fallback=True)
    tokenizer = Tokenizer(models.BPE(vocab, _merges(proto), **options))
    last: list[Any] = []
    if proto.normalizer_spec.add_dummy_prefix:
        # As in `encode`, no space before an empty text or before U+2581.
        at_start = Regex(rf"\A(?=[^{_SPACE}])")
        tokenizer.normalizer = normalizers.Replace(at_start, " ")  # pyright: ignore
        last = [decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(  # pyright: ignore[reportAttributeAccessIssue]
        [decoders.ByteFallback(), decoders.Fuse(), *last]
    )
    # Special pieces, which no text has, and user-defined ones, which are never merged.
    for name, piece in zip(names, proto.pieces, strict=True):
        if piece.type in (_USER_DEFINED, _CONTROL, _UNKNOWN):
            is_special = piece.type != _USER_DEFINED
            tokenizer.add_tokens([AddedToken(name, normalized=False, special=is_special)])
    return parse_json(tokenizer.to_str())


def _merges(proto: Any) -> list[tuple[str, str]]:
    """Return pairs of pieces in the order of merges, highest score first as in SentencePiece."""
    normal = {p.piece for p in proto.pieces if p.type == _NORMAL}
    pairs = []
    for piece in sorted(_merged(proto), key=lambda p: -p.score):
        token = piece.piece
        for split in range(1, len(token)):
            left, right = token[:split], token[split:]
            if left in normal and right in normal:
                pairs.append((left.replace(_SPACE, " "), right.replace(_SPACE, " ")))
    return pairs
