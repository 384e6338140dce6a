"""Studies: cards with forecasts, a scheduler of their runs, and committed result rows.

A study is a folder in here; each of its files may define `cards`, a list (`studies.card`). The
folder also holds the measured rows, `rows/`, and the forecasts, `forecasts.json`. Another folder is
a study too, by its path. `python -m studies run NAME` runs what is missing.
"""

import utils.environment  # noqa: F401 - first: it checks that packages are installed

# isort: split
import importlib
import importlib.util
import pkgutil
from pathlib import Path

from studies.card import Card
from utils.messages import nearest


def names() -> list[str]:
    """List all studies of this repository."""
    return sorted(info.name for info in pkgutil.iter_modules(__path__) if info.ispkg)


def folder(study: str) -> Path:
    """Return the folder of a study: one of this repository by its name, another by its path.

    Raises:
      ValueError: if there is no such study, with the nearest name.
    """
    if "/" in study and Path(study).is_dir():
        return Path(study).resolve()
    if study not in names():
        raise ValueError(f"unknown study {study!r}; {nearest(study, names())}")
    return Path(__path__[0]) / study


def load_cards(study: str) -> dict[str, Card]:
    """Load the cards of a study by name, in the order of its files.

    Raises:
      ValueError: if there is no such study, it has no cards, or two of them have one name.
    """
    cards: dict[str, Card] = {}
    for path in sorted(folder(study).glob("*.py")):
        if study in names():
            module = importlib.import_module(f"studies.{study}.{path.stem}")
        else:
            spec = importlib.util.spec_from_file_location(path.stem, path)
            assert spec and spec.loader  # a path that ends in .py has both
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        for card in getattr(module, "cards", ()):
            if card.name in cards:
                raise ValueError(f"{path}: a card named {card.name} exists already")
            cards[card.name] = card
    if not cards:
        raise ValueError(f"{study} has no cards: its files define none")
    return cards
