"""Tables on a terminal."""

from collections.abc import Iterable, Sequence
from typing import Any

from ropewalk.utils.messages import printable
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
