"""Documents from text that every machine has: this Python's standard library, or your own files.

Source "local" holds these texts out of training, so runs on it were not trained on them.
"""

import hashlib
import random
import sys
from collections.abc import Iterable
from typing import Any

from data.sources import source_class

_LINES = 8  # lines of context
_WORDS = ("apple", "bread", "chair", "doors", "earth", "frame", "grape", "house", "lemon")


def _texts(path: str | None, documents: int) -> list[str]:
    source = source_class("jsonl" if path else "local")(path=path)
    texts, problems = [], []
    for document in source.read():
        if document.problem:
            name = source.inputs[document.file].name
            problems.append(f"{name}:{document.line}: {document.problem}")
        else:
            texts.append(document.text)
    if problems:
        print(f"left out {len(problems):,} bad documents, such as {problems[0]}", file=sys.stderr)
    if not path:
        texts = [text for text in texts if _digest(text) % source.held_out_every() == 0]
    return texts[:documents]


def _digest(text: str) -> int:
    """Return the digest by which `data.prepare` holds documents out."""
    return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16)


def _dataset(rows: Iterable[dict[str, Any]]) -> dict[str, Any]:
    import datasets  # pyright: ignore[reportMissingImports] - of the extra hf

    return {"test": datasets.Dataset.from_list(list(rows))}


def texts(path: str | None = None, documents: int = 50, **_: Any) -> dict[str, Any]:
    """Return whole texts.

    Args:
      path: JSONL files to use instead, as in `data.path`.
      documents: largest number of texts.
    """
    return _dataset({"text": text} for text in _texts(path, documents))


def lines(path: str | None = None, documents: int = 200, **_: Any) -> dict[str, Any]:
    """Return lines of a text and four candidates for the next one, all from that text."""
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
    """Return prompts that ask for a number, which is up to `words` words before the end."""
    draw, rows = random.Random(0), []
    for _each in range(documents):
        key = str(draw.randrange(10_000, 100_000))
        filler = [draw.choice(_WORDS) for _ in range(words)]
        filler.insert(draw.randrange(words), f"\nThe pass key is {key}.\n")
        rows.append({"before": " ".join(filler) + "\nThe pass key is", "key": key})
    return _dataset(rows)
