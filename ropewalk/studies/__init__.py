"""Studies: research questions whose cards are data, and their committed result rows.

A study is a folder that is a package: one of this folder by its name, another by its path. Each
`.toml` file is a card (`studies.card.read`); the functions of `measures.py` make the measures that
claims name; `rows/CARD.jsonl.xz` has the measured rows. The package itself may define:

    configs                   configs by name, besides those of `configs/`
    sections(cards, rows)     yields more parts of the report (`reporting.page.Item`)
"""

import importlib
import importlib.util
import inspect
import pkgutil
import sys
from pathlib import Path
from types import ModuleType

from ropewalk.studies.card import Card, read
from ropewalk.utils.messages import nearest


def names() -> list[str]:
    """List all studies of this repository."""
    return sorted(info.name for info in pkgutil.iter_modules(__path__) if info.ispkg)


def load(study: str) -> ModuleType:
    """Import the package of a study, which is one of this repository, or a folder by its path.

    Raises:
      ValueError: if there is no such study, with the nearest name.
    """
    if study in names():
        return importlib.import_module(f"ropewalk.studies.{study}")
    path = Path(study).resolve() / "__init__.py"
    if "/" not in study or not path.parent.is_dir():
        where = f"; for the folder write ./{study}" if Path(study).is_dir() else ""
        raise ValueError(f"unknown study {study!r}; {nearest(study, names())}{where}")
    if not path.exists():
        raise ValueError(f"{study} is not a study: it lacks __init__.py, which states the question")
    name = f"study_{path.parent.name}"
    spec = importlib.util.spec_from_file_location(
        name, path, submodule_search_locations=[str(path.parent)]
    )
    assert spec and spec.loader  # a path that ends in .py has both
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def folder(study: str) -> Path:
    """Return the folder of a study. Raises ValueError as `load` does."""
    return Path(str(load(study).__file__)).parent


def load_cards(study: str, only: str = "") -> dict[str, Card]:
    """Load cards of a study by name, in the order of its files.

    Args:
      study: name or path.
      only: names of some cards, by commas; empty: all cards.

    Raises:
      ValueError: if there is no such study or card, a file is no card, or two have one name.
    """
    cards: dict[str, Card] = {}
    package, place, measures = load(study), folder(study), {}
    if (place / "measures.py").exists():
        module = importlib.import_module(f"{package.__name__}.measures")
        measures = dict(inspect.getmembers(module, inspect.isfunction))
    for path in sorted(place.glob("*.toml")):
        card = read(path, getattr(package, "configs", {}), measures)
        if card.name in cards:
            raise ValueError(f"{path}: a card named {card.name} exists already")
        cards[card.name] = card
    if not cards:
        raise ValueError(f"{study} has no cards: each is a .toml file")
    for name in filter(None, only.split(",")):
        if name not in cards:
            raise ValueError(f"study {study} has no card {name!r}; {nearest(name, cards)}")
    return {name: card for name, card in cards.items() if not only or name in only.split(",")}
