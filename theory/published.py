"""Published numbers for comparison, from `published.toml`."""

import tomllib
from pathlib import Path
from typing import NamedTuple


class OpenModel(NamedTuple):
    """Published settings of one kind of layer of an open model.

    Attributes:
      name: name on the command line.
      layers: layers that have these settings.
      rotary: expression of `model.rotary`.
      head_dim: features of queries and keys.
      context_length: documented context, tokens; for layers with a sliding window, the window.
      source: reference of the settings.
    """

    name: str
    layers: str
    rotary: str
    head_dim: int
    context_length: int
    source: str


_SHEET = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
LENGTHS = tuple(1024 * 2**k for k in range(11))
MEN_2024 = dict(zip(LENGTHS, _SHEET["smallest_bases"]["men_2024"], strict=True))
SU_2024 = dict(zip(LENGTHS, _SHEET["smallest_bases"]["su_2024"], strict=True))
OPEN_MODELS = tuple(OpenModel(**model) for model in _SHEET["models"])
