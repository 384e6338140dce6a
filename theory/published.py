"""Rotary settings of published models, from `published.toml`."""

import tomllib
from pathlib import Path
from typing import Any, NamedTuple


class OpenModel(NamedTuple):
    """Published settings of an open model.

    Attributes:
      name: name on the command line.
      source: model or page that has the settings.
      config: entries of its config.json that decide rotation.
    """

    name: str
    source: str
    config: dict[str, Any]


_SHEET = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
OPEN_MODELS = tuple(
    OpenModel(
        model["name"],
        model["source"],
        {name: None if value == "null" else value for name, value in model["config"].items()},
    )
    for model in _SHEET["models"]
)
