"""WHAT is asked of many runs: cards, what was measured of them, and what became of their claims.

A study is a folder in here; each of its files defines `cards`, a list (`studies.card`). What was
measured lies beside them, in `rows/`, and so does what was forecast before, `forecasts.json`.
`python -m studies run NAME` makes what is missing; one card can also be trained by its name, as
any config: `python sweep.py NAME --workdir DIR`. A folder elsewhere is a study too, by its path.
"""

import importlib
import importlib.util
import pkgutil
from pathlib import Path

from settings.messages import nearest
from studies.card import Card


def names() -> list[str]:
    """All studies."""
    return sorted(info.name for info in pkgutil.iter_modules(__path__) if info.ispkg)


def folder(study: str) -> Path:
    """Where a study lies: one of this repository by name, or a folder of one's own by its path.

    Raises:
      ValueError: if there is no such study, with the nearest name.
    """
    if "/" in study and Path(study).is_dir():
        return Path(study).resolve()
    if study not in names():
        raise ValueError(f"unknown study {study!r}; {nearest(study, names())}")
    return Path(__path__[0]) / study


def load_cards(study: str) -> dict[str, Card]:
    """The cards of a study by name, found by walking its folder.

    Raises:
      ValueError: if there is no such study, it has no cards, or two of them have one name.
    """
    found: dict[str, Card] = {}
    for path in sorted(folder(study).glob("*.py")):
        if study in names():
            module = importlib.import_module(f"studies.{study}.{path.stem}")
        else:
            spec = importlib.util.spec_from_file_location(path.stem, path)
            assert spec and spec.loader  # a path that ends in .py has both
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        for card in getattr(module, "cards", ()):
            if card.name in found:
                raise ValueError(f"{path}: a card named {card.name} exists already")
            found[card.name] = card
    if not found:
        raise ValueError(f"{study} has no cards: its files define none")
    return found
