"""Text to ids and back: a SentencePiece model, trained here or brought along (e.g. Llama 2's).

Tokenizers that are a `tokenizer.json` and nothing else (Llama 3, Qwen): `data.tokenizer_json`.
"""

import functools
import hashlib
import io
import itertools
import re
import string
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from data import tokenizer_json
from data.files import DamagedError
from settings.places import UnreachableError, place

NUM_KEYS = NUM_VALUES = 64  # symbols of retrieval documents
NUM_SPECIAL = 3 + 256  # <unk> <s> </s> and the 256 byte pieces

_SPACE = "\u2581"  # what SentencePiece writes for a space inside pieces
_SYMBOLS = [f"<key_{i}>" for i in range(NUM_KEYS)] + [f"<value_{i}>" for i in range(NUM_VALUES)]
_ASCII = frozenset(string.printable.strip())
_NUM_RESERVED = NUM_SPECIAL + len(_SYMBOLS) + len(_ASCII) + 1  # ids of a tokenizer trained here
COVERAGE = 0.9995  # of the characters of a text, by pieces other than bytes
FILE_NAMES = ("tokenizer.model", "tokenizer.json")  # in a run, or in prepared data
_TRAINING_LINE = 2048  # characters: well below where the trainer drops a line


def file_in(folder: Path) -> Path:
    """The tokenizer's file in a run or in prepared data; its usual place if there is none."""
    sentencepiece_model, json_file = (folder / name for name in FILE_NAMES)
    return json_file if json_file.exists() else sentencepiece_model


class Pieces(Protocol):
    """What one kind of file says of its ids; the rest of the code sees only `Tokenizer`."""

    @property
    def vocab_size(self) -> int:
        """Number of ids."""
        ...

    @property
    def adds_space(self) -> bool:
        """Whether a space is put before a text."""
        ...

    def encode(self, text: str, *, inside: bool) -> list[int]:
        """Ids of a text, or of what continues one."""
        ...

    def decode(self, ids: list[int]) -> str:
        """The text, without special pieces."""
        ...

    def find(self, piece: str) -> int | None:
        """The id of a piece, by its name."""
        ...

    def bytes_of_all(self) -> list[bytes]:
        """Of each id the bytes it stands for."""
        ...

    def ordinary(self) -> list[int]:
        """Ids of pieces of text that are more than a byte's stand-in."""
        ...


class Tokenizer:
    """A SentencePiece model, or a `tokenizer.json` (which needs `tokenizers`, of the extra `hf`).

    Two tokenizers are equal if their files are. Pickling (for worker processes) carries the
    file's bytes; the processor is rebuilt on first use.

    Attributes:
      model: bytes of the file. A `tokenizer.json` without a word on BOS and EOS has got one from
        the files beside it (`data.tokenizer_json.complete`).
      bos_id, eos_id: ids that begin and end a document; one id in both offices only begins it.

    Raises:
      DamagedError: if the file has another sha256 than the one given.
      ValueError: if `path` is missing or is no tokenizer, or it has no BOS or EOS.
    """

    def __init__(self, path: str | Path, *, sha256: str | None = None):
        try:
            path = place(path)
            self.model = path.read_bytes()
        except UnreachableError:
            raise
        except OSError as error:
            reason = error.strerror or "nothing that can be read"
            raise ValueError(f"{path}: no tokenizer there ({reason})") from None
        # Before it is understood: what a library makes of a damaged model nobody knows.
        if sha256 and hashlib.sha256(self.model).hexdigest() != sha256:
            raise DamagedError(f"{path}: damaged: not the tokenizer that was written")
        if self._is_json:
            self.model, self.bos_id, self.eos_id = tokenizer_json.complete(self.model, path)
        try:
            pieces = self._pieces
        except RuntimeError:
            raise ValueError(f"{path}: not a SentencePiece model") from None
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        if isinstance(pieces, _SentencePieces):
            self.bos_id, self.eos_id = pieces.processor.bos_id(), pieces.processor.eos_id()
        if self.bos_id < 0 or self.eos_id < 0:
            raise ValueError(f"{path}: tokenizer has no BOS or no EOS; documents need both")

    def __getstate__(self) -> dict:
        return {"model": self.model, "bos_id": self.bos_id, "eos_id": self.eos_id}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tokenizer) and self.model == other.model

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    @functools.cached_property
    def fingerprint(self) -> str:
        """sha256 of the file, in hex."""
        return hashlib.sha256(self.model).hexdigest()

    @property
    def _is_json(self) -> bool:
        return self.model[:1] == b"{"  # SentencePiece's begin with a newline: a field's number

    @property
    def file_name(self) -> str:
        """What such a file is called in a folder: one of `FILE_NAMES`."""
        return FILE_NAMES[self._is_json]

    @functools.cached_property
    def _pieces(self) -> Pieces:
        if self._is_json:
            return tokenizer_json.JsonPieces(self.model)
        return _SentencePieces(self.model)

    @property
    def vocab_size(self) -> int:
        """Number of ids."""
        return self._pieces.vocab_size

    def encode(self, text: str, *, inside: bool = False) -> list[int]:
        """Ids of `text`, without BOS and EOS. What a text says of them is text.

        Args:
          text: a document's text from its start or, with `inside`, what continues an earlier part:
            Llama's tokenizer puts a space before a text's start, which has no place in the middle.
        """
        return self._pieces.encode(text, inside=inside)

    def decode(self, ids: Iterable[int]) -> str:
        """The text. Exact for tokenizers made by `train`, whatever the text."""
        return self._pieces.decode([int(i) for i in ids])

    @functools.cached_property
    def piece_bytes(self) -> list[bytes]:
        """Of each id the UTF-8 bytes of text it stands for; none of control and unknown pieces."""
        return self._pieces.bytes_of_all()

    @property
    def adds_space(self) -> bool:
        """Whether the ids of a document begin with a space that its text does not have."""
        return self._pieces.adds_space

    @functools.cached_property
    def digit_ids(self) -> np.ndarray:
        """int32 `[10]`: the piece of each digit.

        Raises:
          ValueError: if a digit is not one piece by itself.
        """
        ids = [self.encode(digit, inside=True) for digit in string.digits]
        if any(len(digit) != 1 for digit in ids):
            raise ValueError("a digit is not one piece of this tokenizer; train it with digits")
        pairs = itertools.product(range(10), repeat=2)
        if any(self.encode(f"{a}{b}", inside=True) != ids[a] + ids[b] for a, b in pairs):
            raise ValueError("this tokenizer joins digits; train it with digits split")
        return np.array(ids, np.int32)[:, 0]

    @functools.cached_property
    def _ordinary(self) -> np.ndarray:
        """Ids that stand for text: no control, byte, unused or retrieval piece."""
        symbols = {self._pieces.find(symbol) for symbol in _SYMBOLS}
        return np.array([i for i in self._pieces.ordinary() if i not in symbols], np.int32)

    @functools.cached_property
    def _symbols(self) -> np.ndarray:
        found = [self._pieces.find(symbol) for symbol in _SYMBOLS]
        if None not in found:
            return np.array(found, np.int32)
        ordinary = self._ordinary
        if len(ordinary) < 2 * len(_SYMBOLS):
            raise ValueError(
                f"tokenizer has {len(ordinary)} ordinary pieces; "
                f"retrieval documents need {2 * len(_SYMBOLS)}"
            )
        return ordinary[np.linspace(0, len(ordinary) - 1, len(_SYMBOLS)).astype(int)]

    @property
    def keys(self) -> np.ndarray:
        """int32 `[64]`: reserved ids of a trained tokenizer, else fixed ordinary pieces."""
        return self._symbols[:NUM_KEYS]

    @property
    def values(self) -> np.ndarray:
        """int32 `[64]`, as `keys`."""
        return self._symbols[NUM_KEYS:]

    @functools.cached_property
    def fillers(self) -> np.ndarray:
        """int32: ordinary pieces that are neither keys nor values, for random text."""
        return np.setdiff1d(self._ordinary, self._symbols).astype(np.int32)


class _SentencePieces:
    """Pieces of a SentencePiece model. Raises RuntimeError if it is none."""

    def __init__(self, model: bytes):
        self.processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        proto = sentencepiece_model_pb2.ModelProto.FromString(model)  # pyright: ignore[reportAttributeAccessIssue]
        self._inner, self.adds_space = self.processor, proto.normalizer_spec.add_dummy_prefix
        if self.adds_space:
            proto.normalizer_spec.add_dummy_prefix = False
            model = proto.SerializeToString()
            self._inner = sentencepiece.SentencePieceProcessor(model_proto=model)

    @property
    def vocab_size(self) -> int:
        return self.processor.vocab_size()

    @functools.cached_property
    def _space_ids(self) -> list[int]:
        return [self.processor.piece_to_id(f"<0x{byte:02X}>") for byte in _SPACE.encode()]

    def encode(self, text: str, *, inside: bool) -> list[int]:
        processor = self._inner if inside else self.processor
        if _SPACE not in text:
            return processor.encode(text)
        # SentencePiece takes a real U+2581 for its own space; as bytes it survives.
        first, *rest = text.split(_SPACE)
        ids = processor.encode(first)
        for part in rest:
            ids += self._space_ids + self._inner.encode(part)
        return ids

    def decode(self, ids: list[int]) -> str:
        return self.processor.decode(ids)

    def find(self, piece: str) -> int | None:
        found = self.processor.piece_to_id(piece)
        return None if found == self.processor.unk_id() else found

    def bytes_of_all(self) -> list[bytes]:
        p = self.processor
        found = []
        for i in range(p.vocab_size()):
            piece = p.id_to_piece(i)
            if p.is_byte(i):
                found.append(bytes([int(piece[3:5], 16)]))
            elif p.is_control(i) or p.is_unknown(i) or p.is_unused(i):
                found.append(b"")
            else:
                found.append(piece.replace(_SPACE, " ").encode())
        return found

    def ordinary(self) -> list[int]:
        texts = enumerate(self.bytes_of_all())
        return [i for i, text in texts if text and not self.processor.is_byte(i)]


def check_vocab_size(vocab_size: int) -> None:
    """Raise ValueError if `vocab_size` has no room for bytes, symbols and ASCII."""
    if vocab_size <= _NUM_RESERVED:
        raise ValueError(
            f"vocab_size={vocab_size} is too small: bytes, retrieval symbols and ASCII take "
            f"{_NUM_RESERVED}; give at least {2 * _NUM_RESERVED}"
        )


def train(texts: Iterable[str], path: str | Path, vocab_size: int) -> None:
    """Trains a BPE model on `texts` and writes it to `path`. The same input gives the same file.

    No normalisation and byte fallback, so that decoding gives back every text exactly; digits are
    split; `<key_0>` ... `<value_63>` are reserved for retrieval documents. The alphabet is
    printable ASCII and the commonest other characters, until they cover 99.95% of the text or fill
    a quarter of the free pieces; the rest is coded as bytes.

    Raises:
      ValueError: if there is no text, or `vocab_size` has no room for bytes, symbols and ASCII, or
        is too large for the text.
    """
    check_vocab_size(vocab_size)
    lines = [line for text in texts for line in _training_lines(text)]
    counts = Counter(itertools.chain.from_iterable(lines))
    if not counts:
        raise ValueError("no text to train a tokenizer on")
    alphabet, covered = {*_ASCII, " "}, 0
    for character, count in counts.most_common((vocab_size - _NUM_RESERVED) // 4):
        if covered >= COVERAGE * counts.total():
            break
        alphabet.add(character)
        covered += count
    others = re.compile(f"[^{re.escape(''.join(sorted(alphabet)))}]+")
    parts = (part for line in lines for part in others.split(line) if part)
    # Before 0.2.3 it aborts where a required character does not occur; by itself one joins nothing.
    is_old = tuple(map(int, sentencepiece.__version__.split(".")[:3])) < (0, 2, 3)
    absent = sorted(_ASCII - counts.keys()) if is_old else []
    options: dict[str, Any] = dict(
        model_type="bpe",
        vocab_size=vocab_size,
        character_coverage=1.0,  # of what is left: the trainer accepts no less than 0.98
        required_chars="".join(sorted(_ASCII)),
        user_defined_symbols=_SYMBOLS,
        byte_fallback=True,
        split_digits=True,
        normalization_rule_name="identity",
        add_dummy_prefix=False,
        remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True,
        max_sentence_length=8 * _TRAINING_LINE,
        minloglevel=2,
    )
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=itertools.chain(parts, absent), model_writer=model, **options
        )
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1]
        raise ValueError(f"vocab_size={vocab_size} does not suit this text: {reason}") from None
    Path(path).write_bytes(model.getvalue())


def _training_lines(text: str) -> Iterator[str]:
    """Pieces of lines. Newlines stay out: they are coded as a byte, so no piece crosses lines."""
    for line in text.replace("\0", "").split("\n"):
        for start in range(0, len(line), _TRAINING_LINE):
            yield line[start : start + _TRAINING_LINE]
