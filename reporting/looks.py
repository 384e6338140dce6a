"""Colors and line styles of members, the same in every figure, and the colors of everything else.

Members with a base have colors of increasing lightness in the order of their bases (plasma, without
its palest end), so that the order survives color blindness and black-and-white prints. Controls are
grey.
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
# Colors of figures, and their names in templates/page.css, which defines darker values for a dark
# page. Other colors, such as those of heat map cells, are the same on both pages.
INK, FAINT, GRID = STYLE["text.color"], STYLE["axes.edgecolor"], STYLE["grid.color"]
PAPER, WASH, EMPTY = "#ffffff", "#f4f5f7", "#eceef1"
NAMED = {INK: "ink", FAINT: "mark", PAPER: "paper", WASH: "wash", EMPTY: "empty", GRID: "grid"}
# Text in a dark or bright cell of a heat map, on both pages.
ON_DARK, ON_BRIGHT = "#fefefe", "#1c2027"

_CONTROL_DASHES = ((0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)), (0, (9, 3)))


class Look(NamedTuple):
    """Color and line style of a member.

    Attributes:
      color, dark: `#rrggbb` on a white and on a dark page.
      linestyle: matplotlib's.
    """

    color: str
    dark: str
    linestyle: tuple | str

    @property
    def dashed(self) -> bool:
        """True if the line is not solid."""
        return self.linestyle != "-"


def make_looks(bases: Sequence[float | None]) -> list[Look]:
    """Return the looks of members with these bases (None: a control)."""
    ordered = sorted({base for base in bases if base is not None})
    # On a dark page, the color range starts where colors are bright enough.
    light, dark = (_colors(len(ordered), *ends) for ends in ((0.02, 0.78), (0.4, 0.95)))
    looks = []
    for index, base in enumerate(bases):
        # Dashes distinguish members with the same base, and controls.
        repetition = bases[:index].count(base)
        if base is None:
            color, dark_color, styles = FAINT, "var(--mark)", _CONTROL_DASHES
        else:
            order = ordered.index(base)
            color, dark_color, styles = light[order], dark[order], ("-", *_CONTROL_DASHES)
        looks.append(Look(color, dark_color, styles[repetition % len(styles)]))
    return looks


def _colors(count: int, first: float, last: float) -> list[str]:
    plasma = matplotlib.colormaps["plasma"]
    return [to_hex(color) for color in plasma(np.linspace(first, last, max(count, 2)))]
