"""Text from token ids as they arrive: complete characters only, never a part of a stop string."""

import codecs
import dataclasses
from collections.abc import Callable, Sequence
from typing import Literal

from ropewalk.data.tokenizer import Tokenizer
from ropewalk.evals.generation.options import Options

Finish = Literal["length", "eos", "stop"]


@dataclasses.dataclass
class Generated:
    """The text after a prompt.

    Attributes:
      text: text without the prompt and without a stop string.
      tokens: ids without EOS, including those of a stop string.
      prompt_tokens: number of ids of the prompt, including BOS.
      finish: reason of the end: `max_new_tokens`, EOS or one of `Tokenizer.stop_ids`, or a stop
        string.
    """

    text: str
    tokens: list[int]
    prompt_tokens: int
    finish: Finish = "length"


class TextStream:
    """The text of one row during generation.

    Attributes:
      generated: the result so far.
      is_done: whether the text has ended.
    """

    def __init__(
        self,
        prompt: Sequence[int],
        tokenizer: Tokenizer,
        options: Options,
        emit: Callable[[str], None] | None = None,
    ):
        """`emit`: called with new text as soon as that is final, and at the end with ""."""
        self.generated, self.is_done = Generated("", [], len(prompt)), False
        self._pieces, self._ends = tokenizer.piece_bytes, {tokenizer.eos_id, *tokenizer.stop_ids}
        self._options, self._emit = options, emit or (lambda text: None)
        # The decoder buffers the bytes of incomplete characters.
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._buffer = ""
        # Some tokenizers add a space at the start of a document.
        self._drops_space = tokenizer.adds_space and list(prompt) == [tokenizer.bos_id]

    def add(self, ids: Sequence[int]) -> None:
        """Add new ids; ignore those after the end of the text."""
        tokens = self.generated.tokens
        for i in ids:
            if self.is_done:
                return
            if i in self._ends:
                self._push(b"", "eos")
                return
            tokens.append(i)
            # A model may have more ids than its tokenizer has pieces; those have no text.
            piece = self._pieces[i] if i < len(self._pieces) else b""
            self._push(piece, "length" if len(tokens) == self._options.max_new_tokens else None)

    def _push(self, piece: bytes, finish: Finish | None) -> None:
        """Add the bytes of an id, of which nothing stays in the buffer if the text ends here."""
        new = self._decoder.decode(piece, final=finish is not None)
        if self._drops_space and new:
            new, self._drops_space = new.removeprefix(" "), False
        text = self._buffer + new
        stops = [index for stop in self._options.stop if (index := text.find(stop)) >= 0]
        finish = "stop" if stops else finish
        end = min(stops) if stops else len(text) - (0 if finish else self._partial_stop(text))
        self._buffer = text[end:]
        self.generated.text += text[:end]
        if end:
            self._emit(text[:end])
        if finish:
            self.generated.finish, self.is_done = finish, True
            self._emit("")

    def _partial_stop(self, text: str) -> int:
        """Return the number of characters at the end of `text` that may begin a stop string."""
        prefixes = (stop[:size] for stop in self._options.stop for size in range(1, len(stop)))
        return max((len(prefix) for prefix in prefixes if text.endswith(prefix)), default=0)
