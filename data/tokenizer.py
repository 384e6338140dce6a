"""Text to ids and back: a SentencePiece model, trained here or brought along (e.g. Llama's)."""

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
from sentencepiece import sentencepiece_model_pb2

from data.files import DamagedError

NUM_KEYS = NUM_VALUES = 64  # symbols of retrieval documents
NUM_SPECIAL = 3 + 256  # <unk> <s> </s> and the 256 byte pieces

_SPACE = "\u2581"  # what SentencePiece writes for a space inside pieces
_SYMBOLS = [f"<key_{i}>" for i in range(NUM_KEYS)] + [f"<value_{i}>" for i in range(NUM_VALUES)]
COVERAGE = 0.9995  # of the characters of a text, by pieces other than bytes
_TRAINING_LINE = 2048  # characters: well below where the trainer drops a line


class Tokenizer:
    """A SentencePiece model.

    Two tokenizers are equal if their model files are. Pickling (for worker processes) carries the
    file's bytes; the processor is rebuilt on first use.

    Attributes:
      model: bytes of the `.model` file.
      bos_id, eos_id: ids that begin and end a document.

    Raises:
      DamagedError: if the file has another sha256 than the one given.
      ValueError: if `path` is missing or is no SentencePiece model, or the model has no BOS or EOS.
    """

    def __init__(self, path: str | Path, *, sha256: str | None = None):
        try:
            self.model = Path(path).read_bytes()
        except OSError as error:
            raise ValueError(f"{path}: no tokenizer there ({error.strerror})") from None
        # Before SentencePiece reads it: what that makes of a damaged model nobody knows.
        if sha256 and self.fingerprint != sha256:
            raise DamagedError(f"{path}: damaged: not the tokenizer that was written")
        try:
            self.bos_id, self.eos_id = self._processor.bos_id(), self._processor.eos_id()
        except RuntimeError:
            raise ValueError(f"{path}: not a SentencePiece model") from None
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
        """sha256 of the model file, in hex."""
        return hashlib.sha256(self.model).hexdigest()

    @functools.cached_property
    def _processor(self) -> sentencepiece.SentencePieceProcessor:
        return sentencepiece.SentencePieceProcessor(model_proto=self.model)

    @functools.cached_property
    def _inner_processor(self) -> sentencepiece.SentencePieceProcessor:
        proto = sentencepiece_model_pb2.ModelProto.FromString(  # pyright: ignore[reportAttributeAccessIssue]
            self.model
        )
        if not proto.normalizer_spec.add_dummy_prefix:
            return self._processor
        proto.normalizer_spec.add_dummy_prefix = False
        return sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())

    @functools.cached_property
    def _space_ids(self) -> list[int]:
        return [self._processor.piece_to_id(f"<0x{byte:02X}>") for byte in _SPACE.encode()]

    @property
    def vocab_size(self) -> int:
        """Number of ids."""
        return self._processor.vocab_size()

    def encode(self, text: str, *, inside: bool = False) -> list[int]:
        """Ids of `text`, without BOS and EOS.

        Args:
          text: a document's text from its start or, with `inside`, what continues an earlier part:
            Llama's tokenizer puts a space before a text's start, which has no place in the middle.
        """
        processor = self._inner_processor if inside else self._processor
        if _SPACE not in text:
            return processor.encode(text)
        # SentencePiece takes a real U+2581 for its own space; as bytes it survives.
        first, *rest = text.split(_SPACE)
        ids = processor.encode(first)
        for part in rest:
            ids += self._space_ids + self._inner_processor.encode(part)
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """The text. Exact for tokenizers made by `train`, whatever the text."""
        return self._processor.decode([int(i) for i in ids])

    @functools.cached_property
    def piece_bytes(self) -> list[bytes]:
        """Of each id the UTF-8 bytes of text it stands for; none of control and unknown pieces."""
        p = self._processor
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

    @property
    def adds_space(self) -> bool:
        """Whether the ids of a document begin with a space that its text does not have."""
        return self._inner_processor is not self._processor

    @functools.cached_property
    def digit_ids(self) -> np.ndarray:
        """int32 `[10]`: the piece of each digit.

        Raises:
          ValueError: if a digit is not one piece by itself.
        """
        ids = [self.encode(digit, inside=True) for digit in string.digits]
        if any(len(digit) != 1 for digit in ids):
            raise ValueError("a digit is not one piece of this tokenizer; train it with digits")
        if self.encode("31415", inside=True) != [ids[d][0] for d in (3, 1, 4, 1, 5)]:
            raise ValueError("this tokenizer joins digits; train it with digits split")
        return np.array(ids, np.int32)[:, 0]

    @functools.cached_property
    def _ordinary(self) -> np.ndarray:
        """Ids that stand for text: no control, byte, unused or retrieval piece."""
        p, symbols = self._processor, set(_SYMBOLS)
        ids = [
            i
            for i, text in enumerate(self.piece_bytes)
            if text and not p.is_byte(i) and p.id_to_piece(i) not in symbols
        ]
        return np.array(ids, np.int32)

    @functools.cached_property
    def _symbols(self) -> np.ndarray:
        p = self._processor
        ids = np.array([p.piece_to_id(symbol) for symbol in _SYMBOLS], np.int32)
        if not np.any(ids == p.unk_id()):
            return ids
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
    lines = [line for text in texts for line in _training_lines(text)]
    counts = Counter(itertools.chain.from_iterable(lines))
    if not counts:
        raise ValueError("no text to train a tokenizer on")
    ascii_pieces = set(string.printable.strip())
    floor = NUM_SPECIAL + len(_SYMBOLS) + len(ascii_pieces) + 1
    if vocab_size <= floor:
        raise ValueError(
            f"vocab_size={vocab_size} is too small: bytes, retrieval symbols and ASCII take "
            f"{floor}; give at least {2 * floor}"
        )
    alphabet, covered = set(ascii_pieces) | {" "}, 0
    for character, count in counts.most_common((vocab_size - floor) // 4):
        if covered >= COVERAGE * counts.total():
            break
        alphabet.add(character)
        covered += count
    others = re.compile(f"[^{re.escape(''.join(sorted(alphabet)))}]+")
    parts = (part for line in lines for part in others.split(line) if part)
    # Before 0.2.3 it aborts where a required character does not occur; by itself one joins nothing.
    is_old = tuple(map(int, sentencepiece.__version__.split(".")[:3])) < (0, 2, 3)
    absent = sorted(ascii_pieces - counts.keys()) if is_old else []
    options: dict[str, Any] = dict(
        model_type="bpe",
        vocab_size=vocab_size,
        character_coverage=1.0,  # of what is left: the trainer accepts no less than 0.98
        required_chars="".join(sorted(ascii_pieces)),
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
