"""Tables of text that fit the width of a terminal, by rich; also as Markdown."""

import dataclasses
import io
import itertools
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from utils.messages import printable

_GAP = 2  # columns between two columns of a table
_NO_TERMINAL = 120  # columns of a pipe or a file, unless COLUMNS is set


def terminal_width() -> int:
    """Return the number of columns of standard output."""
    return shutil.get_terminal_size((_NO_TERMINAL, 24)).columns


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextTable:
    """A table for a terminal.

    Attributes:
      title, caption: text above and below.
      lines: cells by column head.
      names: heads of text columns: left-aligned, and broken after punctuation if necessary.
      optional: heads in the order in which a narrow terminal omits them; other columns that do not
        fit continue below the first ones.
    """

    title: str
    lines: Sequence[Mapping[str, str]]
    names: Sequence[str] = ("run",)
    optional: Sequence[str] = ()
    caption: str = ""

    @property
    def heads(self) -> list[str]:
        """Column heads in order of appearance."""
        return list(dict.fromkeys(head for line in self.lines for head in line))

    def text(self, width: int) -> str:
        """Return the table with lines of at most `width` columns; `none` if it is empty."""
        heads = next((h for h, breaks in self._choices() if self._fits(h, width, breaks)), None)
        heads = self._without(len(self.optional)) if heads is None else heads
        omitted = [head for head in self.heads if head not in heads]
        caption = "; ".join(filter(None, [self.caption, *_omitted(omitted)]))
        blocks = [self._draw(block, width) for block in self._blocks(heads, width)]
        parts = [*wrap(self.title, width), "\n\n".join(blocks) or "none", *wrap(caption, width)]
        return "\n".join(line.rstrip() for line in "\n".join(parts).split("\n"))

    def markdown(self) -> str:
        """Return all columns as Markdown."""
        rows = [self.heads, ["---"] * len(self.heads)]
        rows += [[line.get(head, "") for head in self.heads] for line in self.lines]
        lines = ["| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in rows]
        parts = [f"**{self.title}**", "\n".join(lines), self.caption]
        return "\n\n".join(part for part in parts if part)

    def _without(self, number: int) -> list[str]:
        """Return the heads without the first optional ones."""
        return [head for head in self.heads if head not in self.optional[:number]]

    def _choices(self) -> Iterator[tuple[list[str], bool]]:
        """Yield heads, and whether cells may be broken: unbroken ones are better than many."""
        for breaks in (False, True):
            yield from ((self._without(n), breaks) for n in range(len(self.optional) + 1))

    def _blocks(self, heads: Sequence[str], width: int) -> Iterator[list[str]]:
        """Yield groups of heads that fit, each with the names."""
        names = [head for head in heads if head in self.names]
        block = [*names]
        for head in (head for head in heads if head not in names):
            if block != names and not self._fits([*block, head], width, True):
                yield block
                block = [*names]
            block.append(head)
        if block:
            yield block

    def _fits(self, heads: Sequence[str], width: int, breaks: bool) -> bool:
        return _width(self._columns(heads, width, breaks)) <= width

    def _columns(self, heads: Sequence[str], width: int, breaks: bool) -> list[list[list[str]]]:
        """Return the lines of each cell, by column and row; the first row is the head.

        Names are broken first, then numbers, before their intervals.
        """
        columns: list[list[list[str]]] = []
        for breaks_numbers in (False, True) if breaks else (False,):
            columns = [self._column(head, sys.maxsize, breaks_numbers) for head in heads]
            names = [i for i, head in enumerate(heads) if head in self.names]
            widths = {i: _column_width(columns[i]) for i in names}
            room = width - _width(columns) + sum(widths.values())
            limit = next((n for n in range(width, 1, -1) if _share(widths, n) <= room), 1)
            for i in names if breaks else ():
                columns[i] = self._column(heads[i], limit, breaks_numbers)
            if _width(columns) <= width:
                break
        return columns

    def _column(self, head: str, limit: int, breaks: bool) -> list[list[str]]:
        cells = [line.get(head, "") for line in self.lines]
        if head in self.names:
            return [[head], *(wrap(cell, limit, _NAME) or [""] for cell in cells)]
        rows = [re.split(r" (?=\[|± )", cell) if breaks else [cell] for cell in cells]
        width = max(map(cell_len, [*itertools.chain(*rows), *wrap(head, 1)]))
        return [wrap(head, width), *rows]

    def _draw(self, heads: Sequence[str], width: int) -> str:
        columns = self._columns(heads, width, True)
        table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
        for head, (title, *_) in zip(heads, columns, strict=True):
            justify = "left" if head in self.names else "right"
            table.add_column(Text("\n".join(title)), justify=justify, vertical="top", no_wrap=True)
        for row in list(zip(*columns, strict=True))[1:]:
            table.add_row(*(Text("\n".join(lines)) for lines in row))
        # A name wider than the terminal is the only thing that can still be too wide.
        console = Console(file=io.StringIO(), width=max(width, _width(columns)) + 1)
        console.print(table)
        return "\n".join(part for line in _lines(console) for part in _chop(line, width))


# Spaces, but not those within `[95% CI]`; in names also punctuation.
_SPACE = r"(?<= )(?![^\[]*\])"
_NAME = rf"{_SPACE}|(?<=\w\()(?!\d)|(?<=[,/])(?![\d ])|(?<=dynamic_)"


def wrap(text: str, width: int, breaks: str = _SPACE) -> list[str]:
    """Return `text` in lines of at most `width`, if no part between possible breaks is wider.

    It is broken at spaces, and words that are wider than a line are broken as names are.
    """
    lines: list[str] = []
    for word in re.split(breaks, text) if text else ():
        wide = cell_len(word.rstrip()) > width
        for part in re.split(_NAME, word) if wide else [word]:
            if lines and cell_len((lines[-1] + part).rstrip()) <= width:
                lines[-1] += part
            else:
                lines.append(part)
    return [line.rstrip() for line in lines]


def print_tables(tables: Iterable[TextTable]) -> None:
    """Print tables on standard output, at the width of the terminal."""
    for table in tables:
        sys.stdout.write(printable(table.text(terminal_width())) + "\n\n")


def _omitted(heads: Sequence[str]) -> list[str]:
    return [f"omitted here: {', '.join(heads)}"] if heads else []


def _column_width(column: Sequence[Sequence[str]]) -> int:
    return max(cell_len(text) for cell in column for text in cell)


def _width(columns: Sequence[Sequence[Sequence[str]]]) -> int:
    return sum(map(_column_width, columns)) + _GAP * (len(columns) - 1)


def _share(widths: Mapping[int, int], limit: int) -> int:
    return sum(min(width, limit) for width in widths.values())


def _lines(console: Console) -> list[str]:
    return console.file.getvalue().splitlines()  # pyright: ignore[reportAttributeAccessIssue]


def _chop(line: str, width: int) -> list[str]:
    return [line[start : start + width] for start in range(0, max(len(line.rstrip()), 1), width)]
