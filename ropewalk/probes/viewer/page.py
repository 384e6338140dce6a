"""The viewer's HTML file: templates, and the packed arrays of captures."""

import base64
import dataclasses
import html
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ropewalk.data.tokenizer import Tokenizer
from ropewalk.model import rotary as rotary_lib
from ropewalk.probes.capturing import Capture
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
        path.parent.mkdir(parents=True, exist_ok=True)
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
    members, rows = [], []
    for name, captured in captures.items():
        shown = list_heads(name, captured.config, layers, heads)
        members.append(
            {
                "name": printable(name),
                "rotary": rotary_lib.label(captured.config.rotary),
                "trained": captured.context_length,
                "heads": shown,
                # Turns per token, which mark the periods.
                "turns": [(captured.inv_freq[head] / (2 * math.pi)).tolist() for head in shown],
            }
        )
        rows.append(arrays.pack_rows(captured, shown))
    predicted = [row["expected"].ravel() for member_rows in rows for row in member_rows]
    ids = np.unique(np.concatenate([tokens_BT.ravel(), *predicted]))
    numbers = bytearray()
    page = {
        "members": members,
        "pieces": [_token_text(tokenizer, int(i)) for i in ids],
        "ids": ids.tolist(),
        "rows": [
            {
                "title": printable(titles[row] if row < len(titles) else f"Text {row + 1}"),
                "tokens": tokens_T.tolist(),
                "recalls": arrays.find_recalls(tokens_T),
                "members": [_append(numbers, member_rows[row]) for member_rows in rows],
            }
            for row, tokens_T in enumerate(tokens_BT)
        ],
    }
    source = _TEMPLATES.get_template("view.html").render(
        # Activations a script, only "</" and "<!--" can end it.
        page=json.dumps(page, separators=(",", ":")).replace("<", "\\u003c"),
        numbers=base64.b64encode(zlib.compress(numbers)).decode(),
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
    tokens = [captured.tokens_BT for captured in captures.values()]
    if not tokens or not tokens[0][:, 1:].size:
        raise ValueError("nothing to view: captures need texts of two tokens or more")
    if not all(np.array_equal(tokens_BT, tokens[0]) for tokens_BT in tokens):
        raise ValueError(
            f"{', '.join(captures)} were captured on different tokens: capture the same text with "
            "the same tokenizer"
        )
    if tokens[0].max() >= tokenizer.vocab_size:
        raise ValueError(
            f"captured id {tokens[0].max()} is not in the tokenizer of {tokenizer.vocab_size} ids: "
            "pass the run's, run.tokenizer"
        )
    return tokens[0]


def _append(numbers: bytearray, by_name: Mapping[str, np.ndarray]) -> dict[str, tuple]:
    """Append arrays; return the dtype, start (bytes), and size of each."""
    index = {}
    for name, array in by_name.items():
        index[name] = array.dtype.name, len(numbers), array.size
        content = array.tobytes()
        # Browsers read float32 only at multiples of four bytes.
        numbers += content + bytes(-len(content) % 4)
    return index


def _token_text(tokenizer: Tokenizer, token: int) -> str:
    """Return the text of a token on the page."""
    names = {tokenizer.bos_id: "⟨s⟩", tokenizer.eos_id: "⟨/s⟩"}
    # A model may have more ids than its tokenizer: a padded vocabulary.
    content = tokenizer.piece_bytes[token] if token < tokenizer.vocab_size else b""
    if token in names or not content:
        return names.get(token, f"⟨{token}⟩")
    text = content.decode(errors="replace")
    # A part of a character, or an unprintable one, is shown as bytes.
    is_shown = all(char in "\n\t" or (char.isprintable() and char != "\ufffd") for char in text)
    return text if is_shown else f"⟨{content.hex().upper()}⟩"
