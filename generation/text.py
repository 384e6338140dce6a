"""From ids to text while they come: whole characters only, and never a part of a stop string."""

import codecs
from collections.abc import Sequence

from data.tokenizer import Tokenizer


class TextStream:
    """The text of one row.

    Attributes:
      stopped: whether a stop string has come; the text ends before it.
    """

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str], *, at_start: bool = False):
        """`at_start`: the ids are a document's first, whose space some tokenizers make up."""
        self.stopped = False
        self._pieces, self._stop = tokenizer.piece_bytes, tuple(stop)
        # Bytes of a character that is not whole yet are held back.
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._held = ""
        self._drops_space = at_start and tokenizer.adds_space

    def push(self, ids: Sequence[int], *, last: bool = False) -> str:
        """What these ids add to the text; the `last` ones let out all that is held back."""
        # A model may have more ids than its tokenizer has pieces: they stand for nothing.
        pieces = [self._pieces[i] if i < len(self._pieces) else b"" for i in ids]
        new = self._decoder.decode(b"".join(pieces), final=last)
        if self._drops_space and new:
            new, self._drops_space = new.removeprefix(" "), False
        if self.stopped:
            return ""
        held = self._held + new
        found = [place for stop in self._stop if (place := held.find(stop)) >= 0]
        self.stopped = bool(found)
        safe = min(found) if found else len(held) - (0 if last else self._unsure(held))
        self._held = held[safe:]
        return held[:safe]

    def _unsure(self, held: str) -> int:
        """Characters at the end of `held` that may be the beginning of a stop string."""
        longest = 0
        for stop in self._stop:
            for size in range(min(len(stop) - 1, len(held)), longest, -1):
                if held.endswith(stop[:size]):
                    longest = size
                    break
        return longest
