"""WHAT is asked of many runs: cards, what was measured of them, and what became of their claims.

A study is a folder in here; each of its files defines `cards`, a list (`studies.card`). What was
measured lies beside them, in `rows/`, and so does what was forecast before, `forecasts.json`.
`python -m studies run NAME` makes what is missing; one card can also be trained by its name, as
any config: `python sweep.py NAME --workdir DIR`.
"""

import importlib
import pkgutil
from pathlib import Path

from settings.expressions import nearest
from studies.card import Card


def names() -> list[str]:
    """All studies."""
    return sorted(info.name for info in pkgutil.iter_modules(__path__) if info.ispkg)


def folder(study: str) -> Path:
    """Where a study lies.

    Raises:
      ValueError: if there is no such study, with the nearest name.
    """
    if study not in names():
        raise ValueError(f"unknown study {study!r}; {nearest(study, names())}")
    return Path(__path__[0]) / study


def load_cards(study: str) -> dict[str, Card]:
    """The cards of a study by name, found by walking its folder.

    Raises:
      ValueError: if there is no such study, or two of its cards have one name.
    """
    found: dict[str, Card] = {}
    for info in sorted(pkgutil.iter_modules([str(folder(study))]), key=lambda info: info.name):
        module = importlib.import_module(f"studies.{study}.{info.name}")
        for card in getattr(module, "cards", ()):
            if card.name in found:
                raise ValueError(f"{module.__name__}: a card named {card.name} exists already")
            found[card.name] = card
    return found
