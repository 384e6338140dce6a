"""Captures -> one HTML file: numbers packed into it, and the templates that draw them."""

import base64
import dataclasses
import html
import itertools
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

from data.tokenizer import Tokenizer
from model import rotary as rotary_lib
from probes.inside import Capture
from probes.viewer import arrays
from settings.places import place
from theory import capability

_TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_FRAME = '<iframe srcdoc="{}" style="width: 100%; height: 56rem; border: 0"></iframe>'


@dataclasses.dataclass(frozen=True, repr=False)
class View:
    """A page that needs nothing else: no file, no network.

    Attributes:
      html: the whole of it.
    """

    html: str

    def save(self, path: str | Path) -> Path:
        """Writes it; returns the path."""
        path = place(path)
        path.write_text(self.html, encoding="utf-8")
        return path

    def _repr_html_(self) -> str:
        """How Jupyter and Colab show it; in a frame, as the page has a style of its own."""
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
    """A page on which attention is looked at, of one model or of several on the same text.

    Args:
      captures: of the model, or by the name each is to have; their rows are the page's texts.
      tokenizer: of all of them.
      layers, heads: those that are shown, of every model; None: all.
      titles: of the texts.
      max_size: of the file, MB (10^6 bytes).

    Raises:
      ValueError: without captures or with texts of fewer than two tokens, if captures are not of
        the same tokens or these not of the tokenizer, if there is no such layer or head, or the
        page would be too large.
    """
    if isinstance(captures, Capture):
        captures = {rotary_lib.label(captures.config.rotary): captures}
    tokens_BT = _tokens(captures, tokenizer)
    members = [
        _member(name, inside, _heads(name, inside, layers, heads))
        for name, inside in captures.items()
    ]
    found = [
        _found(inside, member["heads"])
        for inside, member in zip(captures.values(), members, strict=True)
    ]
    said = [of_row["expected"].ravel() for of_rows in found for of_row in of_rows]
    ids = np.unique(np.concatenate([tokens_BT.ravel(), *said]))
    packed = _Packed()
    page = {
        "members": members,
        "pieces": [_piece(tokenizer, int(i)) for i in ids],
        "ids": ids.tolist(),
        "rows": [
            {
                "title": titles[row] if row < len(titles) else f"Text {row + 1}",
                "tokens": tokens_T.tolist(),
                "recalls": arrays.recalls(tokens_T),
                "members": [packed.add(of_rows[row]) for of_rows in found],
            }
            for row, tokens_T in enumerate(tokens_BT)
        ],
    }
    written = _TEMPLATES.get_template("view.html").render(
        # Inside a script nothing but "</" and "<!--" can end or change it.
        page=json.dumps(page, separators=(",", ":")).replace("<", "\\u003c"),
        numbers=packed.base64(),
        names=list(captures),
    )
    if len(written.encode()) > max_size * 1e6:
        raise ValueError(
            f"the page would be {len(written.encode()) / 1e6:.1f} MB, max_size is {max_size:g}: "
            "show fewer layers or heads, a shorter text, or allow more"
        )
    return View(written)


def _tokens(captures: Mapping[str, Capture], tokenizer: Tokenizer) -> np.ndarray:
    """The rows that all captures are of."""
    if not captures:
        raise ValueError("nothing to view: captures is empty")
    first, *others = captures
    tokens_BT = captures[first].tokens_BT
    if not tokens_BT.size or tokens_BT.shape[1] < 2:
        raise ValueError(f"nothing to view: tokens of shape {tokens_BT.shape} have no pair of them")
    for name in others:
        if not np.array_equal(captures[name].tokens_BT, tokens_BT):
            raise ValueError(
                f"{first} and {name} were captured on different tokens; side by side they need "
                "one text and one tokenizer"
            )
    if tokens_BT.max(initial=0) >= tokenizer.vocab_size:
        raise ValueError(
            f"the captured ids go up to {tokens_BT.max()}, the tokenizer has "
            f"{tokenizer.vocab_size}: give that of the run, run.tokenizer"
        )
    return tokens_BT


def _heads(
    name: str, inside: Capture, layers: Sequence[int] | None, heads: Sequence[int] | None
) -> list[tuple[int, int]]:
    """The chosen heads, layer by layer."""
    chosen = []
    for what, numbers, count in (
        ("layer", layers, inside.config.num_layers),
        ("head", heads, inside.config.num_heads),
    ):
        chosen.append(range(count) if numbers is None else numbers)
        for number in chosen[-1]:
            if not 0 <= number < count:
                raise ValueError(f"{name} has no {what} {number}: {what}s are 0 to {count - 1}")
    return list(itertools.product(*chosen))


def _member(name: str, inside: Capture, heads: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """What the page says of a model."""
    inv_freq_LNR = capability.of_heads(inside.table().inv_freq, inside.config.num_heads)
    return {
        "name": name,
        "rotary": rotary_lib.label(inside.config.rotary),
        "trained": inside.context_length,
        "heads": heads,
        # Turns per token: nothing else is needed to mark cycles.
        "turns": [(inv_freq_LNR[head] / (2 * math.pi)).tolist() for head in heads],
    }


def _found(inside: Capture, heads: Sequence[tuple[int, int]]) -> list[dict[str, np.ndarray]]:
    """Of every row, what `arrays` finds of these heads and of the model's answers."""
    found = arrays.of_heads(inside, heads)
    for row, by_name in enumerate(found):
        by_name["expected"], by_name["chance"] = arrays.expected(inside, row)
    return found


class _Packed:
    """Arrays one after another."""

    def __init__(self):
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, by_name: Mapping[str, np.ndarray]) -> dict[str, tuple[str, int, int]]:
        """Of each array its kind, where it begins (bytes), and how many numbers it has."""
        places = {}
        for name, array in by_name.items():
            places[name] = array.dtype.name, self._size, array.size
            content = np.ascontiguousarray(array).tobytes()
            # A browser reads float32 at multiples of four bytes only.
            self._parts.append(content + bytes(-len(content) % 4))
            self._size += len(self._parts[-1])
        return places

    def base64(self) -> str:
        """All of it, deflated."""
        return base64.b64encode(zlib.compress(b"".join(self._parts))).decode()


def _piece(tokenizer: Tokenizer, token: int) -> str:
    """What a token is called."""
    names = {tokenizer.bos_id: "⟨s⟩", tokenizer.eos_id: "⟨/s⟩"}
    content = tokenizer.piece_bytes[token]
    if token in names or not content:
        return names.get(token, f"⟨{token}⟩")
    text = content.decode(errors="replace")
    # A part of a character, or one that has no picture.
    is_shown = all(sign in "\n\t" or (sign.isprintable() and sign != "\ufffd") for sign in text)
    return text if is_shown else f"⟨{content.hex().upper()}⟩"
