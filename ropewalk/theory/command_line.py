"""Tables on a terminal and paths of figures, for the commands of `theory`."""

import argparse
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ropewalk.utils.files import check_writable
from ropewalk.utils.messages import printable, quoted
from ropewalk.utils.paths import local
from ropewalk.utils.text_table import TextTable, terminal_width


def format_table(
    texts: Sequence[str], numbers: Sequence[str], rows: Iterable[Sequence[str]], **options: Any
) -> str:
    """Return a table that fits the terminal: columns of text, then columns of numbers.

    Args:
      texts, numbers: heads of the columns.
      rows: cells.
      **options: `title`, `caption` and `optional` of TextTable.
    """
    heads = [*texts, *numbers]
    lines = [dict(zip(heads, row, strict=True)) for row in rows]
    return printable(TextTable(lines=lines, names=texts, **options).text(terminal_width())) + "\n"


def figure_path(text: str) -> Path:
    """Parse the path of a figure: a .png, .svg or .pdf file of a disk that can be written."""
    try:
        path = local(text)
        if path.suffix not in (".png", ".svg", ".pdf"):
            raise ValueError(f"{quoted(text)} is not a .png, .svg or .pdf file")
        check_writable(path.parent, "choose another path")
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return path


def to_json(value: Any) -> Any:
    """Return a value for JSON: arrays as lists, and null for infinite numbers and NaN."""
    if isinstance(value, dict):
        return {name: to_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return list(map(to_json, value))
    if isinstance(value, float):  # also of numpy
        return float(value) if math.isfinite(value) else None
    return value
