"""Published numbers for comparison, from `published.toml`."""

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


# First zero of Ci(x) = -∫_x^∞ cos t / t dt: length / CI_ZERO is the limit of the smallest base for
# infinitely many pairs.
CI_ZERO = 0.6165054856207162

_SHEET = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
LENGTHS = tuple(1024 * 2**k for k in range(11))
MEN_2024 = dict(zip(LENGTHS, _SHEET["smallest_bases"]["men_2024"], strict=True))
SU_2024 = dict(zip(LENGTHS, _SHEET["smallest_bases"]["su_2024"], strict=True))
OPEN_MODELS = tuple(
    OpenModel(
        model["name"],
        model["source"],
        {name: None if value == "null" else value for name, value in model["config"].items()},
    )
    for model in _SHEET["models"]
)
