"""Text streaming from token ids: complete characters only, and never a part of a stop string."""

import codecs
from collections.abc import Sequence

from ropewalk.data.tokenizer import Tokenizer


class TextStream:
    """The text of one row.

    Attributes:
      stopped: whether a stop string was found; the text ends before it.
    """

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str], *, at_start: bool = False):
        """`at_start`: the ids are a document's first; some tokenizers add a space there."""
        self.stopped = False
        self._pieces, self._stop = tokenizer.piece_bytes, tuple(stop)
        # The decoder buffers the bytes of incomplete characters.
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._buffer = ""
        self._drops_space = at_start and tokenizer.adds_space

    def push(self, ids: Sequence[int], *, last: bool = False) -> str:
        """Return the text that these ids add; `last` also returns all buffered text."""
        # A model may have more ids than its tokenizer has pieces; those have no text.
        pieces = [self._pieces[i] if i < len(self._pieces) else b"" for i in ids]
        new = self._decoder.decode(b"".join(pieces), final=last)
        if self._drops_space and new:
            new, self._drops_space = new.removeprefix(" "), False
        if self.stopped:
            return ""
        text = self._buffer + new
        stops = [index for stop in self._stop if (index := text.find(stop)) >= 0]
        self.stopped = bool(stops)
        end = min(stops) if stops else len(text) - (0 if last else self._partial_stop(text))
        self._buffer = text[end:]
        return text[:end]

    def _partial_stop(self, text: str) -> int:
        """Return the number of characters at the end of `text` that may begin a stop string."""
        longest = 0
        for stop in self._stop:
            for size in range(min(len(stop) - 1, len(text)), longest, -1):
                if text.endswith(stop[:size]):
                    longest = size
                    break
        return longest
