"""The viewer's HTML file: templates, and the packed arrays of captures."""

import base64
import dataclasses
import html
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ropewalk.data.tokenizer import Tokenizer
from ropewalk.model import rotary as rotary_lib
from ropewalk.probes.inside import Capture
from ropewalk.probes.viewer import arrays, list_heads
from ropewalk.reporting.page import load_templates
from ropewalk.utils.files import write_atomically
from ropewalk.utils.messages import printable
from ropewalk.utils.paths import as_path

_TEMPLATES = load_templates(Path(__file__).with_name("templates"))
_FRAME = '<iframe srcdoc="{}" style="width: 100%; height: 56rem; border: 0"></iframe>'


@dataclasses.dataclass(frozen=True, repr=False)
class View:
    """A self-contained page, without other files or network access.

    Attributes:
      html: source of the page.
    """

    html: str

    def save(self, path: str | Path) -> Path:
        """Write the page and return the path."""
        path = as_path(path)
        write_atomically(path, self.html)
        return path

    def _repr_html_(self) -> str:
        """Return the page in a frame, for Jupyter and Colab; a frame separates the styles."""
        return _FRAME.format(html.escape(self.html))

    def __repr__(self) -> str:
        return f"a page of {len(self.html) / 1e6:.1f} MB; .save('view.html') writes it"


def view(
    captures: Capture | Mapping[str, Capture],
    tokenizer: Tokenizer,
    *,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    titles: Sequence[str] = (),
    max_size: float = 5,
) -> View:
    """Return an interactive page of the attention of one model, or of several on the same text.

    Args:
      captures: a capture, or captures by the model's name; their rows are the page's texts.
      tokenizer: tokenizer of all models.
      layers, heads: layers and heads to show, of every model; None: all.
      titles: titles of the texts.
      max_size: maximal size of the file, MB (10^6 bytes).

    Raises:
      ValueError: if there are no captures, for texts of fewer than two tokens, if captures differ
        in tokens, for ids outside the tokenizer, for an unknown layer or head, and for a page
        above `max_size`.
    """
    if isinstance(captures, Capture):
        captures = {rotary_lib.label(captures.config.rotary): captures}
    tokens_BT = _tokens(captures, tokenizer)
    members = [
        _member(name, inside, list_heads(name, inside.config, layers, heads))
        for name, inside in captures.items()
    ]
    rows = [
        _pack_rows(inside, member["heads"])
        for inside, member in zip(captures.values(), members, strict=True)
    ]
    predicted = [row["expected"].ravel() for member_rows in rows for row in member_rows]
    ids = np.unique(np.concatenate([tokens_BT.ravel(), *predicted]))
    packed = _Packed()
    page = {
        "members": members,
        "pieces": [_token_text(tokenizer, int(i)) for i in ids],
        "ids": ids.tolist(),
        "rows": [
            {
                "title": printable(titles[row] if row < len(titles) else f"Text {row + 1}"),
                "tokens": tokens_T.tolist(),
                "recalls": arrays.find_recalls(tokens_T),
                "members": [packed.add(member_rows[row]) for member_rows in rows],
            }
            for row, tokens_T in enumerate(tokens_BT)
        ],
    }
    source = _TEMPLATES.get_template("view.html").render(
        # Activations a script, only "</" and "<!--" can end it.
        page=json.dumps(page, separators=(",", ":")).replace("<", "\\u003c"),
        numbers=packed.base64(),
        names=list(map(printable, captures)),
    )
    if len(source.encode()) > max_size * 1e6:
        raise ValueError(
            f"the page would be {len(source.encode()) / 1e6:.1f} MB, max_size is {max_size:g}: "
            "show fewer layers or heads or a shorter text, or raise max_size"
        )
    return View(source)


def _tokens(captures: Mapping[str, Capture], tokenizer: Tokenizer) -> np.ndarray:
    """Return the rows of all captures."""
    if not captures:
        raise ValueError("nothing to view: captures is empty")
    first, *names = captures
    tokens_BT = captures[first].tokens_BT
    if not tokens_BT.size or tokens_BT.shape[1] < 2:
        raise ValueError(f"nothing to view: tokens of shape {tokens_BT.shape} have fewer than two")
    for name in names:
        if not np.array_equal(captures[name].tokens_BT, tokens_BT):
            raise ValueError(
                f"{first} and {name} were captured on different tokens: capture the same text with "
                "the same tokenizer"
            )
    if tokens_BT.max(initial=0) >= tokenizer.vocab_size:
        raise ValueError(
            f"captured id {tokens_BT.max()} is not in the tokenizer of {tokenizer.vocab_size} ids: "
            "pass the run's, run.tokenizer"
        )
    return tokens_BT


def _member(name: str, inside: Capture, heads: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """Return the page's facts about a model."""
    inv_freq_LNR = inside.inv_freq
    return {
        "name": printable(name),
        "rotary": rotary_lib.label(inside.config.rotary),
        "trained": inside.context_length,
        "heads": heads,
        # Turns per token, which mark the periods.
        "turns": [(inv_freq_LNR[head] / (2 * math.pi)).tolist() for head in heads],
    }


def _pack_rows(inside: Capture, heads: Sequence[tuple[int, int]]) -> list[dict[str, np.ndarray]]:
    """Return the arrays of these heads and the model's predictions, for every row."""
    rows = arrays.pack_heads(inside, heads)
    for row, by_name in enumerate(rows):
        by_name["expected"], by_name["chance"] = arrays.predict_next(inside, row)
    return rows


class _Packed:
    """Concatenated arrays."""

    def __init__(self):
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, by_name: Mapping[str, np.ndarray]) -> dict[str, tuple[str, int, int]]:
        """Append arrays; return the dtype, start (bytes), and size of each."""
        index = {}
        for name, array in by_name.items():
            index[name] = array.dtype.name, self._size, array.size
            content = np.ascontiguousarray(array).tobytes()
            # Browsers read float32 only at multiples of four bytes.
            self._parts.append(content + bytes(-len(content) % 4))
            self._size += len(self._parts[-1])
        return index

    def base64(self) -> str:
        """Return all arrays, deflated, in base64."""
        return base64.b64encode(zlib.compress(b"".join(self._parts))).decode()


def _token_text(tokenizer: Tokenizer, token: int) -> str:
    """Return the text of a token on the page."""
    names = {tokenizer.bos_id: "⟨s⟩", tokenizer.eos_id: "⟨/s⟩"}
    content = tokenizer.piece_bytes[token]
    if token in names or not content:
        return names.get(token, f"⟨{token}⟩")
    text = content.decode(errors="replace")
    # A part of a character, or an unprintable one, is shown as bytes.
    is_shown = all(char in "\n\t" or (char.isprintable() and char != "\ufffd") for char in text)
    return text if is_shown else f"⟨{content.hex().upper()}⟩"
