"""Questions from text that is on every machine: the library of this Python, or files of one's own.

The texts are those that source "local" holds out of training, so a run on it has not seen them.
"""

import hashlib
import random
from collections.abc import Iterable
from typing import Any

from data.sources import source_class

_LINES = 8  # before the one that is asked for
_WORDS = ("apple", "bread", "chair", "doors", "earth", "frame", "grape", "house", "lemon")


def _texts(path: str | None, documents: int) -> list[str]:
    source = source_class("jsonl" if path else "local")(path=path)
    texts = [document.text for document in source.read() if not document.problem]
    if not path:
        texts = [text for text in texts if _digest(text) % source.held_out_every() == 0]
    return texts[:documents]


def _digest(text: str) -> int:
    """The digest of `data.prepare`, which holds documents out by it."""
    return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16)


def _dataset(rows: Iterable[dict[str, Any]]) -> dict[str, Any]:
    import datasets  # pyright: ignore[reportMissingImports] - of the extra hf

    return {"test": datasets.Dataset.from_list(list(rows))}


def texts(path: str | None = None, documents: int = 50, **_: Any) -> dict[str, Any]:
    """Whole texts.

    Args:
      path: JSONL files to read instead, as `data.path`.
      documents: how many, at most.
    """
    return _dataset({"text": text} for text in _texts(path, documents))


def lines(path: str | None = None, documents: int = 200, **_: Any) -> dict[str, Any]:
    """Some lines of a text, and four that may come next: the right one and others of that text."""
    draw, rows = random.Random(0), []
    for text in _texts(path, documents):
        text_lines = [line for line in text.split("\n") if line.strip()]
        for start in range(0, len(text_lines) - _LINES, 16 * _LINES):
            right = text_lines[start + _LINES]
            distractors = sorted({line for line in text_lines if line != right})
            if len(distractors) >= 3:
                choices = [right, *draw.sample(distractors, 3)]
                draw.shuffle(choices)
                before = "\n".join(text_lines[start : start + _LINES]) + "\n"
                row = {"before": before, "choices": choices, "answer": choices.index(right)}
                rows.append(row)
    draw.shuffle(rows)
    return _dataset(rows[:documents])


def passkeys(documents: int = 50, words: int = 40, **_: Any) -> dict[str, Any]:
    """A number to be said again, `words` words after it was said, at most."""
    draw, rows = random.Random(0), []
    for _each in range(documents):
        key = str(draw.randrange(10_000, 100_000))
        filler = [draw.choice(_WORDS) for _ in range(words)]
        filler.insert(draw.randrange(words), f"\nThe pass key is {key}.\n")
        rows.append({"before": " ".join(filler) + "\nThe pass key is", "key": key})
    return _dataset(rows)
