"""Tokenizers of Hugging Face's `tokenizers`: one file, `tokenizer.json`.

Llama 3, Qwen and SmolLM3 have nothing else: byte-level BPE, whose pieces are bytes, each byte
written as a character of its own. Files made from SentencePiece models are read too.

The file says how text becomes ids, but not which ids begin and end a document. We say it there, as
the template by which `tokenizers` itself would make a document of a text: BOS text EOS.
"""

import functools
import json
import re
from pathlib import Path
from typing import Any

_SPACE = "\u2581"
_BYTE = re.compile("<0x([0-9A-F]{2})>")
# Decoders of SentencePiece's pieces; that of byte-level ones is `ByteLevel`.
_SENTENCEPIECE = {"Replace", "ByteFallback", "Fuse", "Strip", "Metaspace", "Sequence"}


def complete(content: bytes, path: Path) -> tuple[bytes, int, int]:
    """A `tokenizer.json` that says which ids begin and end a document, and these, BOS and EOS.

    If it does not say so already: by name from `tokenizer_config.json` or `special_tokens_map.json`
    beside it, else by id from `config.json`, the model's. Who names an EOS and no BOS (Qwen, GPT-2)
    has the EOS in both offices.

    Args:
      content: bytes of the file.
      path: where it lies, for what lies beside it.

    Raises:
      ValueError: if it is no such file, or nothing says what ends a document.
    """
    try:
        file = json.loads(content)
        vocabulary = vocabulary_of(file)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        raise ValueError(f"{path}: not a tokenizer.json") from None
    if ids := _ends(file.get("post_processor")):
        return content, *ids
    named = _named(path.parent, {i: name for name, i in vocabulary.items()})
    bos, eos = named.get("bos", named.get("eos")), named.get("eos")
    if bos is None or eos is None:
        raise ValueError(
            f"{path}: tokenizer has no BOS or no EOS; documents need both: put the "
            "tokenizer_config.json that names them beside it"
        )
    for name in (bos, eos):
        if name not in vocabulary:
            raise ValueError(f"{path}: it has no piece {name!r}, which should begin or end texts")
    file["post_processor"] = template([bos], [eos], vocabulary)
    written = json.dumps(file, ensure_ascii=False).encode()
    return written, vocabulary[bos], vocabulary[eos]


def template(before: list[str], after: list[str], vocabulary: dict[str, int]) -> dict[str, Any]:
    """A post-processor: special tokens before and after a text, and around each of two."""
    put = {name: {"SpecialToken": {"id": name, "type_id": 0}} for name in (*before, *after)}
    one, other = (
        [*map(put.get, before), {"Sequence": {"id": name, "type_id": 0}}, *map(put.get, after)]
        for name in "AB"
    )
    special = {name: {"id": name, "ids": [vocabulary[name]], "tokens": [name]} for name in put}
    return {
        "type": "TemplateProcessing",
        "single": one,
        "pair": one + other,
        "special_tokens": special,
    }


def _ends(post_processor: Any) -> tuple[int, int] | None:
    """BOS and EOS of a post-processor that puts one before and one after a text."""
    try:
        first, text, last = post_processor["single"]
        if "Sequence" not in text:
            return None
        special, names = post_processor["special_tokens"], (first, last)
        bos, eos = (special[name["SpecialToken"]["id"]]["ids"] for name in names)
        return int(bos[0]), int(eos[0])
    except (KeyError, TypeError, ValueError):
        return None


def vocabulary_of(file: dict[str, Any]) -> dict[str, int]:
    """Ids of all pieces of a `tokenizer.json`, by their names in it."""
    vocab = file["model"]["vocab"]
    if isinstance(vocab, list):  # Unigram's: piece and score
        vocab = {piece: i for i, (piece, _) in enumerate(vocab)}
    return vocab | {token["content"]: token["id"] for token in file.get("added_tokens") or []}


def _named(folder: Path, pieces: dict[int, str]) -> dict[str, str]:
    """What the files in a folder call `bos` and `eos`."""
    found = {}
    for name in ("tokenizer_config.json", "special_tokens_map.json", "config.json"):
        try:
            said = json.loads((folder / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if not isinstance(said, dict):
            continue
        for end in ("bos", "eos"):
            token, ids = said.get(f"{end}_token"), said.get(f"{end}_token_id")
            if isinstance(token, dict):
                token = token.get("content")
            if token is None and ids is not None:  # a model may stop at any of several
                ids = ids if isinstance(ids, list) else [ids]
                token = next((pieces[i] for i in ids if i in pieces), None)
            if isinstance(token, str):
                found.setdefault(end, token)
    return found


class JsonPieces:
    """Pieces of a `tokenizer.json`, as `data.tokenizer.Pieces`.

    Raises:
      ValueError: if `tokenizers` is not installed, or does not read the file, or its pieces are
        neither bytes nor SentencePiece's.
    """

    def __init__(self, model: bytes):
        self._file = json.loads(model)
        kinds = _kinds(self._file.get("decoder"))
        self._is_byte_level = "ByteLevel" in kinds
        if not self._is_byte_level and (not kinds or kinds - _SENTENCEPIECE):
            raise ValueError(
                f"this tokenizer.json is of a kind that is not read (decoder "
                f"{', '.join(sorted(kinds)) or 'none'}); byte-level and SentencePiece's are"
            )
        self._outer = self._inner = _load(self._file)
        vocabulary = self._outer.get_vocab(with_added_tokens=True)
        self.vocab_size = max(vocabulary.values()) + 1
        self._added = {token["id"]: token for token in self._file.get("added_tokens") or []}
        if wrong := [t for i, t in self._added.items() if vocabulary[t["content"]] != i]:
            raise ValueError(
                f"`tokenizers` gives {wrong[0]['content']!r} the id "
                f"{vocabulary[wrong[0]['content']]}, and this tokenizer.json says {wrong[0]['id']}"
            )
        self._names = [""] * self.vocab_size
        for name, i in vocabulary.items():
            self._names[i] = name
        first = self.encode("x", inside=False)[:1]
        self.adds_space = bool(first) and self.bytes_of(first[0]).startswith(b" ")
        if self.adds_space:
            self._inner = _load(_without_prefix(self._file))

    def encode(self, text: str, *, inside: bool) -> list[int]:
        """Ids of a text, or of what continues one."""
        tokenizer = self._inner if inside else self._outer
        # A batch of one: in half the time, and other threads run meanwhile.
        return tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids

    def decode(self, ids: list[int]) -> str:
        """The text, without special pieces."""
        return self._outer.decode(ids, skip_special_tokens=True)

    def find(self, piece: str) -> int | None:
        """The id of a piece, by its name."""
        return self._outer.token_to_id(piece)

    def bytes_of(self, i: int) -> bytes:
        """What an id stands for."""
        name = self._names[i]
        if i in self._added:
            return b"" if self._added[i]["special"] else name.encode()
        if self._is_byte_level:
            values = _byte_values()  # pieces that nobody says were added are written as they are
            return bytes(values[c] for c in name) if values.keys() >= set(name) else name.encode()
        if found := _BYTE.fullmatch(name):
            return bytes.fromhex(found[1])
        if name == self._file["model"].get("unk_token"):
            return b""
        return name.replace(_SPACE, " ").encode() if self._writes_spaces else name.encode()

    @functools.cached_property
    def _writes_spaces(self) -> bool:
        """Whether the decoder takes U+2581 for a space."""
        return _SPACE in json.dumps(self._file["decoder"], ensure_ascii=False)

    def bytes_of_all(self) -> list[bytes]:
        """Of each id the bytes it stands for."""
        return list(map(self.bytes_of, range(self.vocab_size)))

    def ordinary(self) -> list[int]:
        """Ids of pieces that are text by themselves, and are not there for a byte's sake."""
        found = []
        for i, text in enumerate(self.bytes_of_all()):
            if text and i not in self._added and not _BYTE.fullmatch(self._names[i]):
                try:
                    text.decode()
                except UnicodeDecodeError:  # a part of a character
                    continue
                found.append(i)
        return found


def _load(file: dict[str, Any]) -> Any:
    try:
        import tokenizers  # pyright: ignore[reportMissingImports] - of the extra hf
    except ImportError:
        raise ValueError(
            "a tokenizer.json needs `tokenizers`: pip install tokenizers (or ropewalk's extra hf)"
        ) from None
    try:
        tokenizer = tokenizers.Tokenizer.from_str(json.dumps(file))
    except Exception as error:  # that is what the library raises
        reason = str(error).splitlines()[0][:100]
        raise ValueError(f"`tokenizers` does not read this tokenizer.json: {reason}") from None
    # `<|end_of_text|>` in a text is text: nobody's document ends where another says so.
    tokenizer.encode_special_tokens = True
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _kinds(part: Any) -> set[str]:
    """Types of a part of the file and of those in it."""
    if not isinstance(part, dict):
        return set()
    inner = [
        each for name in ("decoders", "normalizers", "pretokenizers") for each in part.get(name, ())
    ]
    return {part["type"]}.union(*map(_kinds, inner))


def _without_prefix(file: dict[str, Any]) -> dict[str, Any]:
    """The file without what puts a space before a text."""

    def without(part: Any) -> Any:
        if isinstance(part, list):
            return [without(each) for each in part if not _prepends(each)]
        if not isinstance(part, dict):
            return part
        changed = {name: without(value) for name, value in part.items()}
        if "prepend_scheme" in changed:
            changed["prepend_scheme"] = "never"
        if "add_prefix_space" in changed:
            changed["add_prefix_space"] = False
        return changed

    parts = {name: file.get(name) for name in ("normalizer", "pre_tokenizer")}
    return file | {name: None if _prepends(p) else without(p) for name, p in parts.items()}


def _prepends(part: Any) -> bool:
    if not isinstance(part, dict):
        return False
    # The second is what `interop.tokenizer_files` writes.
    at_start = str((part.get("pattern") or {}).get("Regex", "")).startswith(r"\A(?=")
    return part.get("type") == "Prepend" or (part.get("type") == "Replace" and at_start)


@functools.cache
def _byte_values() -> dict[str, int]:
    """Bytes by the characters that stand for them: GPT-2's rule, which all byte-level BPE follows.

    What Latin-1 shows stands for itself, the others in their order for U+0100 and on.
    """
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in shown]
    return {chr(b): b for b in shown} | {chr(256 + n): byte for n, byte in enumerate(others)}
