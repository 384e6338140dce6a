"""Tokenizers: SentencePiece models, trained here or existing ones such as Llama 2's.

`data.tokenizer_json` reads tokenizers that are only a `tokenizer.json` (Llama 3, Qwen).
"""

import contextlib
import ctypes
import functools
import hashlib
import io
import itertools
import re
import string
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece

from ropewalk.data import tokenizer_json
from ropewalk.utils.errors import UnreachableError
from ropewalk.utils.files import write_atomically
from ropewalk.utils.limits import read_bytes
from ropewalk.utils.manifest import DamagedError
from ropewalk.utils.messages import one_line, print_note, quoted
from ropewalk.utils.paths import as_path

NUM_KEYS = NUM_VALUES = 64  # symbols of retrieval documents
NUM_SPECIAL = 3 + 256  # <unk> <s> </s> and the 256 byte pieces

_SPACE = "\u2581"  # a space inside SentencePiece's pieces
_SYMBOLS = [f"<key_{i}>" for i in range(NUM_KEYS)] + [f"<value_{i}>" for i in range(NUM_VALUES)]
_ASCII = frozenset(string.printable.strip())
_NUM_RESERVED = NUM_SPECIAL + len(_SYMBOLS) + len(_ASCII) + 1  # ids of a tokenizer trained here
# Spaces, line ends, characters that a normalizer changes, other scripts, what is a space in pieces.
HARD_TEXT = "  a  b\n\n\tc\r\n \u00e9 e\u0301 \ufb01 \u00bd \u6f22\u5b57 \U0001f642 \u2581 d\u00a0 "
COVERAGE = 0.9995  # share of the characters of a text that are pieces instead of bytes
FILE_NAMES = ("tokenizer.model", "tokenizer.json")  # in runs and prepared folders
# Attributes that are copied to worker processes; the others are made of them on first use.
_PICKLED = {"model", "bos_id", "eos_id", "vocab_size", "adds_space", "chat_template", "stop_ids"}
_TRAINING_LINE = 2048  # characters; the trainer drops much longer lines


def file_in(folder: Path) -> Path:
    """Return the tokenizer's file in a run or prepared folder, or the default path if missing."""
    sentencepiece_model, json_file = (folder / name for name in FILE_NAMES)
    return json_file if json_file.exists() else sentencepiece_model


class Tokenizer:
    """A SentencePiece model, or a `tokenizer.json`.

    Two tokenizers are equal if their files are. Pickling (for worker processes) copies the bytes of
    the file; the processor is rebuilt on first use.

    Attributes:
      model: bytes of the file. A `tokenizer.json` without BOS and EOS gets them from the files
        beside it (`data.tokenizer_json.complete`).
      bos_id, eos_id: ids that begin and end a document; if they are equal, the id only begins it.
      vocab_size: number of ids.
      adds_space: whether the ids of a document begin with a space that is not in its text.
      chat_template: Jinja template of a chat model; see `data.chat`.
      stop_ids: ids that end a generated text besides EOS, as chat models have.

    Raises:
      DamagedError: if the file does not have the expected sha256.
      ValueError: if `path` is missing or not a tokenizer, or the tokenizer has no BOS or EOS.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        sha256: str | None = None,
        chat_template: str | None = None,
        stop_ids: Iterable[int] = (),
    ):
        self.chat_template, self.stop_ids = chat_template, tuple(stop_ids)
        try:
            path = as_path(path)
            self.model = read_bytes(path)
        except UnreachableError:
            raise
        except OSError as error:
            reason = error.strerror or "nothing that can be read"
            raise ValueError(f"{path}: no tokenizer there ({reason})") from None
        # Check before parsing: libraries may crash on a damaged model.
        if sha256 and hashlib.sha256(self.model).hexdigest() != sha256:
            raise DamagedError(f"{path}: damaged: not the tokenizer that was written")
        if self._is_json:
            self.model, self.bos_id, self.eos_id = tokenizer_json.complete(self.model, path)
        try:
            pieces = self._pieces
        except ValueError as error:
            raise ValueError(f"{path}: {one_line(str(error), 160)}") from None
        except (RuntimeError, AttributeError, IndexError, KeyError, TypeError) as error:
            kind = "tokenizer.json" if self._is_json else "SentencePiece model"
            raise ValueError(f"{path}: not a {kind}") from error
        self.vocab_size, self.adds_space = pieces.vocab_size, pieces.adds_space
        if isinstance(pieces, _SentencePieces):
            self.bos_id, self.eos_id = pieces.processor.bos_id(), pieces.processor.eos_id()
        if not all(0 <= i < self.vocab_size for i in (self.bos_id, self.eos_id)):
            raise ValueError(
                f"{path}: tokenizer has no BOS or no EOS; documents need both: train it with "
                "bos_id and eos_id, or put the tokenizer_config.json that names them beside it"
            )

    def __getstate__(self) -> dict:
        return {name: value for name, value in vars(self).items() if name in _PICKLED}

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
        return self.model[:1] == b"{"  # SentencePiece models begin with a newline

    @property
    def file_name(self) -> str:
        """Name of the file in a folder, one of `FILE_NAMES`."""
        return FILE_NAMES[self._is_json]

    @functools.cached_property
    def _pieces(self) -> "_SentencePieces | tokenizer_json.JsonPieces":
        if self._is_json:
            return tokenizer_json.JsonPieces(self.model)
        return _SentencePieces(self.model)

    def encode(self, text: str, *, inside: bool = False, special: bool = False) -> list[int]:
        """Return the ids of `text`, without BOS and EOS; the text `</s>` is not EOS.

        Args:
          text: text of a document.
          inside: whether the text continues an earlier part. Llama's tokenizer adds a space before
            the start of a document, but must not add one in the middle.
          special: whether names of special pieces of a `tokenizer.json`, such as `<|im_start|>`,
            are those pieces, as in the prompts of chat models.
        """
        return self._pieces.encode(text, inside=inside, special=special)

    def encode_prompt(self, text: str) -> list[int]:
        """Return the ids of a prompt, which begin with one BOS; its special pieces are read."""
        ids = self.encode(text, special=True)
        return ids if ids[:1] == [self.bos_id] else [self.bos_id, *ids]

    @property
    def end(self) -> list[int]:
        """Ids that end a document: EOS, or none if one id is BOS and EOS."""
        return [] if self.eos_id == self.bos_id else [self.eos_id]

    def name_of(self, i: int) -> str:
        """Return the name of an id, such as `<|im_start|>`."""
        return self._pieces.name_of(i)

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text. Decoding inverts encoding exactly for tokenizers made by `train`."""
        return self._pieces.decode([int(i) for i in ids])

    @functools.cached_property
    def piece_bytes(self) -> list[bytes]:
        """UTF-8 bytes of each id, empty for control and unknown pieces."""
        return list(map(self._pieces.bytes_of, range(self.vocab_size)))

    @functools.cached_property
    def piece_lengths(self) -> np.ndarray:
        """Number of bytes of each id, int32 `[V]`."""
        return np.array(list(map(len, self.piece_bytes)), np.int32)

    def spelled_spaces(self, ids: np.ndarray) -> np.ndarray:
        """Return where three byte pieces of U+2581 stand for a space, indices of the first ones.

        So does a SentencePiece model without a piece for the space.
        """
        spelled = self._pieces.spelled_space
        if len(spelled) != len(_SPACE.encode()) or len(ids) < len(spelled):
            return np.zeros(0, int)
        windows = np.lib.stride_tricks.sliding_window_view(ids, len(spelled))
        return np.flatnonzero((windows == spelled).all(axis=1))

    def text_of(self, ids: np.ndarray, *, inside: bool = False) -> bytes:
        """Return the text that ids stand for; bits per byte count these bytes.

        Args:
          ids: of a document, with BOS and EOS or without.
          inside: as of `encode`.
        """
        pieces = self._piece_array[ids]
        for first in self.spelled_spaces(ids):
            pieces[first : first + 3] = b" ", b"", b""
        return b"".join(pieces)[self.adds_space and not inside :]

    @functools.cached_property
    def _piece_array(self) -> np.ndarray:
        return np.array(self.piece_bytes, object)

    def describe_changes(self) -> str:
        """Describe how `HARD_TEXT` changes when it is encoded and decoded; "" if it does not."""
        ids, before = np.array(self.encode(HARD_TEXT), int), HARD_TEXT.encode()
        if (after := self.text_of(ids)) != before:
            sizes = f"{len(before)} bytes of a test text become {len(after)}"
            change = first_change(HARD_TEXT, after.decode(errors="replace"))
            return f"does not keep every text ({change}): {sizes}, and bits per byte count these"
        if (decoded := self.decode(ids)) != HARD_TEXT:
            return f"decodes to another text ({first_change(HARD_TEXT, decoded)})"
        return ""

    @functools.cached_property
    def digit_ids(self) -> np.ndarray:
        """Id of each digit, int32 `[10]`.

        Raises:
          ValueError: if a digit is not one piece.
        """
        ids = [self.encode(digit, inside=True) for digit in string.digits]
        if any(len(digit) != 1 or not self.piece_bytes[digit[0]] for digit in ids):
            raise ValueError("a digit is not one piece of this tokenizer; train it with digits")
        return np.array(ids, np.int32)[:, 0]

    @functools.cached_property
    def splits_digits(self) -> bool:
        """True if every digit of a number has an id of its own; as `digit_ids`."""
        ids, pairs = self.digit_ids.tolist(), itertools.product(range(10), repeat=2)
        return all(self.encode(f"{a}{b}", inside=True) == [ids[a], ids[b]] for a, b in pairs)

    @functools.cached_property
    def _ordinary(self) -> np.ndarray:
        """Ids of valid text, without control, byte, added, unused and retrieval pieces."""
        symbols, is_byte = set(map(self._pieces.find, _SYMBOLS)), self._pieces.is_byte_or_added
        texts = enumerate(x.decode(errors="ignore").encode() == x != b"" for x in self.piece_bytes)
        ids = [i for i, is_text in texts if is_text and i not in symbols and not is_byte(i)]
        return np.array(ids, np.int32)

    @functools.cached_property
    def reserves_symbols(self) -> bool:
        """True if keys and values have ids that occur in no text."""
        return None not in map(self._pieces.find, _SYMBOLS)

    @functools.cached_property
    def _symbols(self) -> np.ndarray:
        if self.reserves_symbols:
            return np.array(list(map(self._pieces.find, _SYMBOLS)), np.int32)
        ordinary = self._ordinary
        if len(ordinary) < 2 * len(_SYMBOLS):
            raise ValueError(
                f"tokenizer has {len(ordinary)} ordinary pieces; "
                f"retrieval documents need {2 * len(_SYMBOLS)}"
            )
        return ordinary[np.linspace(0, len(ordinary) - 1, len(_SYMBOLS)).astype(int)]

    @property
    def keys(self) -> np.ndarray:
        """Reserved ids of a tokenizer trained here, else fixed ordinary pieces, int32 `[64]`."""
        return self._symbols[:NUM_KEYS]

    @property
    def values(self) -> np.ndarray:
        """Like `keys`, int32 `[64]`."""
        return self._symbols[NUM_KEYS:]

    @functools.cached_property
    def fillers(self) -> np.ndarray:
        """Ordinary pieces that are neither keys nor values, for random text, int32."""
        return np.setdiff1d(self._ordinary, self._symbols).astype(np.int32)


def first_change(before: str, after: str) -> str:
    """Describe the first difference of two texts, such as a space for a newline."""
    pairs = enumerate(itertools.zip_longest(before, after))
    start = max(0, next((i for i, (a, b) in pairs if a != b), 0) - 8)
    return " became ".join(quoted(text[start : start + 16]) for text in (before, after))


# The message `normalizer_spec { add_dummy_prefix: false }`. Appended to a model's file, protobuf
# merges it into the file's own, whose other fields stay.
_NO_SPACE = b"\x1a\x02\x18\x00"


class _SentencePieces:
    """Pieces of a SentencePiece model; RuntimeError if the bytes are not one."""

    def __init__(self, model: bytes):
        self.processor, self._inner = (
            sentencepiece.SentencePieceProcessor(model_proto=x) for x in (model, model + _NO_SPACE)
        )
        self.adds_space = self.processor.encode("x") != self._inner.encode("x")
        self.vocab_size = self.processor.vocab_size()
        self._space_ids = [
            self.processor.piece_to_id(f"<0x{byte:02X}>") for byte in _SPACE.encode()
        ]
        self.spelled_space = self._space_ids if self.find(_SPACE) is None else []

    def encode(self, text: str, *, inside: bool, special: bool = False) -> list[int]:
        # The library has no option to read names of control pieces.
        processor = self._inner if inside else self.processor
        # SentencePiece treats U+2581 as its space, so encode the character as bytes.
        first, *rest = text.split(_SPACE)
        ids = processor.encode(first)
        for part in rest:
            ids += self._space_ids + self._inner.encode(part)
        return ids

    def name_of(self, i: int) -> str:
        return self.processor.id_to_piece(i)

    def decode(self, ids: list[int]) -> str:
        return self.processor.decode(ids)

    def find(self, piece: str) -> int | None:
        i = self.processor.piece_to_id(piece)
        return None if i == self.processor.unk_id() else i

    def bytes_of(self, i: int) -> bytes:
        p, piece = self.processor, self.processor.id_to_piece(i)
        if p.is_byte(i):
            return bytes([int(piece[3:5], 16)])
        is_text = not (p.is_control(i) or p.is_unknown(i) or p.is_unused(i))
        return piece.replace(_SPACE, " ").encode() if is_text else b""

    def is_byte_or_added(self, i: int) -> bool:
        return self.processor.is_byte(i)


def check_vocab_size(vocab_size: int) -> None:
    """Raise ValueError if `vocab_size` has no room for bytes, symbols and ASCII."""
    if vocab_size <= _NUM_RESERVED:
        raise ValueError(
            f"data.vocab_size={vocab_size} is too small: bytes, retrieval symbols and ASCII take "
            f"{_NUM_RESERVED}; use at least {_NUM_RESERVED + 1}"
        )


def train(texts: Iterable[str], path: str | Path, vocab_size: int) -> None:
    """Train a BPE model on `texts` and write it to `path`. Equal inputs give equal files.

    There is byte fallback and no normalization, so that decoding restores every text exactly.
    Digits are split; `<key_0>` ... `<value_63>` are reserved for retrieval documents. The alphabet
    is printable ASCII and the most frequent other characters, until they cover 99.95% of the text
    or fill a quarter of the free pieces; other characters become bytes. A small text has fewer
    pieces than `vocab_size`.

    Raises:
      ValueError: if there is no text, or `vocab_size` has no room for bytes, symbols and ASCII.
    """
    check_vocab_size(vocab_size)
    lines = [line for text in texts for line in _training_lines(text)]
    counts = Counter(itertools.chain.from_iterable(lines))
    if not counts:
        raise ValueError(
            "no text to train a tokenizer on; use more text, or larger data.subset_shares"
        )
    alphabet, covered = {*_ASCII, " "}, 0
    for character, count in counts.most_common((vocab_size - _NUM_RESERVED) // 4):
        if covered >= COVERAGE * counts.total():
            break
        alphabet.add(character)
        covered += count
    outside = re.compile(f"[^{re.escape(''.join(sorted(alphabet)))}]+")
    # Before 0.2.3, training aborts if a required character is absent; add each as a line.
    is_old = tuple(map(int, sentencepiece.__version__.split(".")[:3])) < (0, 2, 3)
    absent = sorted(_ASCII - counts.keys()) if is_old else []

    def train_model(**limit: Any) -> bytes:
        parts = (part for line in lines for part in outside.split(line) if part)
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=itertools.chain(parts, absent),
            model_writer=model,
            model_type="bpe",
            vocab_size=vocab_size,
            character_coverage=1.0,  # of the remaining text; the trainer requires at least 0.98
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
            **limit,
        )
        return model.getvalue()

    try:
        model = train_model()
    except RuntimeError:  # the text is too small for so many pieces
        model = train_model(hard_vocab_limit=False)
    with contextlib.suppress(OSError, AttributeError):  # glibc keeps 100 MB that were the trainer's
        ctypes.CDLL(None).malloc_trim(0)
    write_atomically(Path(path), model)
    if (size := Tokenizer(path).vocab_size) < vocab_size:
        what = f"data.vocab_size={vocab_size}: the text is too small for so many pieces"
        print_note(path, f"{what}; its tokenizer has {size}")


def _training_lines(text: str) -> Iterator[str]:
    """Yield parts of lines without newlines, which become bytes, so that no piece crosses lines."""
    for line in text.replace("\0", "").split("\n"):
        for start in range(0, len(line), _TRAINING_LINE):
            yield line[start : start + _TRAINING_LINE]
