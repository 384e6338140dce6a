"""How members look: the same colour and dashes in every figure, and the colours of all else.

Members with a base are coloured in its order (plasma, cut before it pales on white: its lightness
rises steadily, so the order survives colour-blindness and a photocopier). Controls are grey.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
from matplotlib.colors import to_hex

STYLE = matplotlib.rc_params_from_file(
    Path(__file__).with_name("templates") / "figures.mplstyle", use_default_template=False
)
# What figures are drawn with, and the name of each in templates/page.css, which has darker ones for
# a dark page. Colours that are not here, those of cells, stay what they are.
INK, FAINT, GRID = STYLE["text.color"], STYLE["axes.edgecolor"], STYLE["grid.color"]
PAPER, WASH, EMPTY = "#ffffff", "#f4f5f7", "#eceef1"
NAMED = {INK: "ink", FAINT: "mark", PAPER: "paper", WASH: "wash", EMPTY: "empty", GRID: "grid"}
# Text in a cell, whatever the page: on a dark one, on a bright one.
ON_DARK, ON_BRIGHT = "#fefefe", "#1c2027"

_CONTROL_DASHES = ((0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)), (0, (9, 3)))


class Look(NamedTuple):
    """How a member is drawn in every figure.

    Attributes:
      color, dark: as `#rrggbb`, on white and on a dark page.
      linestyle: matplotlib's.
    """

    color: str
    dark: str
    linestyle: tuple | str

    @property
    def dashed(self) -> bool:
        """Whether its line is not a whole one."""
        return self.linestyle != "-"


def looks(bases: Sequence[float | None]) -> list[Look]:
    """Of members with these bases; None: of a control."""
    found = sorted({base for base in bases if base is not None})
    # On a dark page the colours begin where they are bright enough to be seen.
    light, dark = (_colors(len(found), *ends) for ends in ((0.02, 0.78), (0.4, 0.95)))
    result = []
    for place, base in enumerate(bases):
        # Members that share a base, or have none, are told apart by their dashes.
        again = bases[:place].count(base)
        if base is None:
            color, dark_color, styles = FAINT, "var(--mark)", _CONTROL_DASHES
        else:
            order = found.index(base)
            color, dark_color, styles = light[order], dark[order], ("-", *_CONTROL_DASHES)
        result.append(Look(color, dark_color, styles[again % len(styles)]))
    return result


def _colors(count: int, first: float, last: float) -> list[str]:
    plasma = matplotlib.colormaps["plasma"]
    return [to_hex(color) for color in plasma(np.linspace(first, last, max(count, 2)))]
