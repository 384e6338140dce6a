"""Tokenizers of Hugging Face's `tokenizers` in one file, `tokenizer.json`.

Llama 3, Qwen and SmolLM3 use byte-level BPE in this format, with one character for each byte. Files
made from SentencePiece models are read too.

Many files do not record which ids begin and end a document. We add a post-processor with the
template BOS text EOS, which `tokenizers` understands.
"""

import contextlib
import functools
import json
import re
from pathlib import Path
from typing import Any

from ropewalk.utils.limits import MAX_PIECES, parse_json, read_json
from ropewalk.utils.messages import quoted

_BEFORE_MODEL = ("normalizer", "pre_tokenizer")
_BYTE = re.compile("<0x([0-9A-F]{2})>")
# Decoders of SentencePiece's pieces; the decoder of byte-level pieces is `ByteLevel`.
_SENTENCEPIECE = {"Replace", "ByteFallback", "Fuse", "Strip", "Metaspace", "Sequence"}


def complete(content: bytes, path: Path) -> tuple[bytes, int, int]:
    """Return a `tokenizer.json` with BOS and EOS, and their ids; -1 if no file names EOS.

    If the file lacks them, they come from files beside it: by name from `tokenizer_config.json` or
    `special_tokens_map.json`, or by id from the model's `config.json`. If only EOS is known (Qwen,
    GPT-2), it is used for both.

    Args:
      content: bytes of the file.
      path: path of the file.

    Raises:
      ValueError: if it is not a tokenizer.json, or lacks the piece that a file names.
    """
    try:
        file = parse_json(content)
        vocabulary = vocabulary_of(file)
        if not all(isinstance(i, int) for i in vocabulary.values()):
            raise TypeError
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ValueError(f"{path}: not a tokenizer.json") from None
    if ids := _ends(file.get("post_processor")):
        return content, *ids
    ends = _read_ends(path.parent, {i: name for name, i in vocabulary.items()})
    bos, eos = ends.get("bos", ends.get("eos")), ends.get("eos")
    if bos is None or eos is None:
        return content, -1, -1
    for name in (bos, eos):
        if name not in vocabulary:
            raise ValueError(
                f"{path}: it has no piece {quoted(name)}, which should begin or end texts"
            )
    for token in file.get("added_tokens") or []:
        if token["content"] in (bos, eos):  # some chat models have a plain <|im_end|>
            token["special"] = True
    file["post_processor"] = template([bos], [eos], vocabulary)
    written = json.dumps(file, ensure_ascii=False).encode()
    return written, vocabulary[bos], vocabulary[eos]


def template(before: list[str], after: list[str], vocabulary: dict[str, int]) -> dict[str, Any]:
    """Return a post-processor with special tokens before and after one or two texts."""
    tokens = {name: {"SpecialToken": {"id": name, "type_id": 0}} for name in (*before, *after)}
    first, second = (
        [*map(tokens.get, before), {"Sequence": {"id": i, "type_id": 0}}, *map(tokens.get, after)]
        for i in "AB"
    )
    special = {name: {"id": name, "ids": [vocabulary[name]], "tokens": [name]} for name in tokens}
    parts = {"single": first, "pair": first + second, "special_tokens": special}
    return {"type": "TemplateProcessing"} | parts


def _ends(post_processor: Any) -> tuple[int, int] | None:
    """Return BOS and EOS of a post-processor that adds one token before and one after a text."""
    try:
        first, text, last = post_processor["single"]
        if "Sequence" not in text:
            return None
        special, names = post_processor["special_tokens"], (first, last)
        bos, eos = (special[name["SpecialToken"]["id"]]["ids"] for name in names)
        return int(bos[0]), int(eos[0])
    except (KeyError, IndexError, TypeError, ValueError, OverflowError):
        return None


def vocabulary_of(file: dict[str, Any]) -> dict[str, int]:
    """Return the ids of all pieces of a `tokenizer.json` by name."""
    vocab = file["model"]["vocab"]
    if isinstance(vocab, list):  # Unigram's: piece and score
        vocab = {piece: i for i, (piece, _) in enumerate(vocab)}
    return vocab | {token["content"]: token["id"] for token in file.get("added_tokens") or []}


def read_settings(path: Path) -> dict[str, Any]:
    """Return the JSON object of a file beside a tokenizer; {} if it is missing or damaged."""
    with contextlib.suppress(OSError, ValueError):
        settings = read_json(path)
        return settings if isinstance(settings, dict) else {}
    return {}


def _read_ends(folder: Path, pieces: dict[int, str]) -> dict[str, str]:
    """Return the pieces that the files in a folder call `bos` and `eos`."""
    ends = {}
    for name in ("tokenizer_config.json", "special_tokens_map.json", "config.json"):
        settings = read_settings(folder / name)
        for end in ("bos", "eos"):
            token, ids = settings.get(f"{end}_token"), settings.get(f"{end}_token_id")
            if isinstance(token, dict):
                token = token.get("content")
            if token is None:  # a list if a model stops at several ids
                ids = ids if isinstance(ids, list) else [ids]
                token = next((pieces[i] for i in ids if isinstance(i, int) and i in pieces), None)
            if isinstance(token, str):
                ends.setdefault(end, token)
    return ends


class JsonPieces:
    """Pieces of a `tokenizer.json`, as the library `tokenizers` reads it.

    Attributes:
      vocab_size: largest id, plus 1.
      adds_space: whether a text begins with a space that is not in it.

    Raises:
      ValueError: if `tokenizers` cannot read the file, its pieces are neither byte-level nor
        SentencePiece's, or it gives a text other ids at every call.
    """

    spelled_space = ()

    def __init__(self, content: bytes):
        file = parse_json(content)
        decoders = _types(file.get("decoder"))
        self._is_byte_level = "ByteLevel" in decoders
        if not self._is_byte_level and (not decoders or decoders - _SENTENCEPIECE):
            raise ValueError(
                f"this tokenizer.json is of a kind that is not read (decoder "
                f"{', '.join(sorted(decoders)) or 'none'}); byte-level and SentencePiece's are"
            )
        if dropout := file["model"].get("dropout"):
            raise ValueError(
                f"this tokenizer.json has model.dropout={quoted(dropout)}, which gives a text "
                "other ids at every call; set it to null in the file"
            )
        ends = _ends(file.get("post_processor")) or ()
        for token in file.get("added_tokens") or []:
            if token["id"] in ends and not token["special"]:  # else a text could end a document
                token["special"] = True
                content = json.dumps(file).encode()
        self._content, self._named = content, _load(content)
        vocabulary = self._named.get_vocab(with_added_tokens=True)
        self.vocab_size = max(vocabulary.values()) + 1
        if self.vocab_size > MAX_PIECES:
            raise ValueError(
                f"this tokenizer.json has the id {self.vocab_size - 1:,} (allowed: below "
                f"{MAX_PIECES:,})"
            )
        self._added = {token["id"]: token for token in file.get("added_tokens") or []}
        if wrong := [t for i, t in self._added.items() if vocabulary[t["content"]] != i]:
            raise ValueError(
                f"`tokenizers` gives {wrong[0]['content']!r} the id "
                f"{vocabulary[wrong[0]['content']]}, and this tokenizer.json says {wrong[0]['id']}"
            )
        self._unknown = file["model"].get("unk_token")
        self._outer = self._named
        if isinstance(file["model"]["vocab"], list):
            file = _hide_special(file)
            self._outer = _load(json.dumps(file).encode())
        first = self._outer.encode("x", add_special_tokens=False).ids[:1]
        self.adds_space = bool(first) and self.bytes_of(first[0]).startswith(b" ")
        self._inner = self._outer
        if self.adds_space:
            parts = {name: _without_prefix(file.get(name)) for name in _BEFORE_MODEL}
            self._inner = _load(json.dumps(file | parts).encode())

    def encode(self, text: str, *, inside: bool, special: bool = False) -> list[int]:
        """Return the ids of a text; see `data.tokenizer.Tokenizer.encode`."""
        tokenizer = self._special if special else self._inner if inside else self._outer
        # A batch of one takes half the time and releases the interpreter lock.
        return tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids

    def name_of(self, i: int) -> str:
        """Return the name of an id."""
        return self._named.id_to_token(i) or ""

    @functools.cached_property
    def _special(self) -> Any:
        """The tokenizer that reads names of special pieces."""
        tokenizer = _load(self._content)
        tokenizer.encode_special_tokens = False
        return tokenizer

    def decode(self, ids: list[int]) -> str:
        """Return the text without special pieces."""
        return self._named.decode(ids, skip_special_tokens=True)

    def find(self, piece: str) -> int | None:
        """Return the id of a piece by name."""
        return self._named.token_to_id(piece)

    def bytes_of(self, i: int) -> bytes:
        """Return the text of an id as bytes, empty for special and unknown pieces."""
        name, added = self.name_of(i), self._added.get(i)
        if not name or name == self._unknown or (added and added["special"]):
            return b""
        if self._is_byte_level:
            values = _byte_values()  # an added piece is plain text
            is_text = added or not values.keys() >= set(name)
            return name.encode() if is_text else bytes(values[c] for c in name)
        if match := _BYTE.fullmatch(name):  # a part of a character, perhaps
            return bytes.fromhex(match[1])
        # Decoders treat the start and the end of a text otherwise.
        return self._named.decoder.decode(["x", name, "x"])[1:-1].encode()

    def is_byte_or_added(self, i: int) -> bool:
        """Return whether an id is a byte, or was added to the pieces of text."""
        return i in self._added or bool(_BYTE.fullmatch(self.name_of(i)))


def _load(content: bytes) -> Any:
    import tokenizers  # late: most runs have a SentencePiece model

    try:
        tokenizer = tokenizers.Tokenizer.from_buffer(content)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of Rust is no Exception
        reason = str(error).splitlines()[0][:100]
        raise ValueError(f"`tokenizers` does not read this tokenizer.json: {reason}") from None
    # `<|end_of_text|>` in a text is text, not the end of a document.
    tokenizer.encode_special_tokens = True
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _hide_special(file: dict[str, Any]) -> dict[str, Any]:
    """Return a Unigram file whose special pieces have names that occur in no text.

    Its model finds any piece in a text, so that `</s>` would be EOS; SentencePiece's finds none
    that is special.
    """
    special = {token["content"] for token in file["added_tokens"] if token["special"]}
    hidden = {name: f"\uffff{name}" for name in special if not _BYTE.fullmatch(name)}
    vocab = [[hidden.get(piece, piece), score] for piece, score in file["model"]["vocab"]]
    added = [t | {"content": hidden.get(t["content"], t["content"])} for t in file["added_tokens"]]
    return file | {"model": file["model"] | {"vocab": vocab}, "added_tokens": added}


def _types(part: Any) -> set[str]:
    """Return the types of a decoder and of the decoders inside it."""
    if not isinstance(part, dict):
        return set()
    return {part["type"]}.union(*map(_types, part.get("decoders", ())))


def _without_prefix(part: Any) -> Any:
    """Return a part of the file without the rules that put a space before a text."""
    if isinstance(part, list):
        return list(map(_without_prefix, part))
    if not isinstance(part, dict):
        return part
    # The second is what `interop.tokenizer_files` writes.
    at_start = str((part.get("pattern") or {}).get("Regex", "")).startswith(r"\A(?=")
    if part.get("type") == "Prepend" or (part.get("type") == "Replace" and at_start):
        return {"type": "Sequence", "normalizers": []}
    settings = {"prepend_scheme": "never", "add_prefix_space": False}
    return {name: settings.get(name, _without_prefix(value)) for name, value in part.items()}


@functools.cache
def _byte_values() -> dict[str, int]:
    """Return the byte of each character by GPT-2's rule, which all byte-level BPE follows.

    Printable Latin-1 characters are their own bytes; the other bytes in order are U+0100 ...
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(256 + n): byte for n, byte in enumerate(rest)}
