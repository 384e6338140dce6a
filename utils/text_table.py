"""Tables of text that fit the width of a terminal, also as Markdown."""

import dataclasses
import itertools
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence

from rich.cells import cell_len

from utils.messages import printable

_GAP = "  "
_LEVELS = (False, False), (True, False), (True, True)  # whether names and numbers are broken
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
        heads = self._select_heads(width)
        omitted = [head for head in self.heads if head not in heads]
        caption = self.caption
        if omitted:
            caption += f"{'; ' if caption else ''}omitted here: {', '.join(omitted)}"
        blocks = [self._block(heads, width) for heads in self._blocks(heads, width) if heads]
        blocks = blocks or ["none"]
        texts = [*wrap(self.title, width), *"\n\n".join(blocks).split("\n"), *wrap(caption, width)]
        return "\n".join(line.rstrip() for line in texts)

    def _select_heads(self, width: int) -> list[str]:
        """Return the heads to show: as many as fit on unbroken lines, or else on broken ones."""
        heads = self.heads
        for levels in (1, len(_LEVELS)):
            for number in range(len(self.optional) + 1):
                heads = [head for head in self.heads if head not in self.optional[:number]]
                if _width(self._columns(heads, width, levels)) <= width:
                    return heads
        return heads

    def markdown(self) -> str:
        """Return all columns as Markdown."""
        rows = [self.heads, ["---"] * len(self.heads)]
        rows += [[line.get(head, "") for head in self.heads] for line in self.lines]
        lines = ["| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in rows]
        parts = [f"**{self.title}**", "\n".join(lines), self.caption]
        return "\n\n".join(part for part in parts if part)

    def _columns(self, heads: Sequence[str], width: int, levels: int = 3) -> list[list[list[str]]]:
        """Return the lines of each cell, by column and row; the first row is the head.

        Heads are broken at spaces. Other cells are on one line if everything fits; else names are
        broken, then also numbers, before their intervals.
        """
        names = [head for head in heads if head in self.names]
        columns: list[list[list[str]]] = []
        for breaks_names, breaks_numbers in _LEVELS[:levels]:
            rest = sum(
                _column_width(self._column(head, breaks_numbers)) + len(_GAP)
                for head in heads
                if head not in names
            )
            gaps = len(_GAP) * (len(names) - 1)
            room = self._divide(width - rest - gaps, names, breaks_names)
            columns = [
                self._names(head, room[head])
                if head in names
                else self._column(head, breaks_numbers)
                for head in heads
            ]
            if _width(columns) <= width:
                break
        return columns

    def _divide(self, width: int, names: Sequence[str], breaks: bool) -> dict[str, int]:
        """Divide a width among columns of names; a narrow one leaves its rest to the others."""
        widths = {head: _column_width(self._names(head, sys.maxsize)) for head in names}
        for number, head in enumerate(sorted(names, key=widths.__getitem__) if breaks else ()):
            fair = max(width // (len(names) - number), _column_width(self._names(head, 0)))
            widths[head] = min(widths[head], fair)
            width -= widths[head]
        return widths

    def _names(self, head: str, room: int) -> list[list[str]]:
        cells = [line.get(head, "") for line in self.lines]
        longest = max(
            (cell_len(part.rstrip()) for cell in cells for part in _parts(cell)), default=0
        )
        return [[head], *(_join(_parts(cell), max(room, longest, len(head))) for cell in cells)]

    def _column(self, head: str, breaks: bool) -> list[list[str]]:
        cells = [line.get(head, "") for line in self.lines]
        rows = [re.split(r" (?=\[|± )", cell) if breaks else [cell] for cell in cells]
        width = max(map(cell_len, [*itertools.chain(*rows), *wrap(head, 1)]))
        return [wrap(head, width), *rows]

    def _blocks(self, heads: Sequence[str], width: int) -> Iterable[list[str]]:
        """Yield groups of heads that fit, each with the names."""
        names = [head for head in heads if head in self.names]
        block = [*names]
        for head in (head for head in heads if head not in names):
            if block != names and _width(self._columns([*block, head], width)) > width:
                yield block
                block = [*names]
            block.append(head)
        yield block

    def _block(self, heads: Sequence[str], width: int) -> str:
        columns = self._columns(heads, width)
        lines = []
        for row in range(len(columns[0])):
            cells = [column[row] for column in columns]
            for number in range(max(map(len, cells))):
                line = []
                for head, cell, column in zip(heads, cells, columns, strict=True):
                    # Heads of two lines end, and other cells begin, on the same line.
                    index = number - (max(map(len, cells)) - len(cell)) * (row == 0)
                    text = cell[index] if 0 <= index < len(cell) else ""
                    space = " " * (_column_width(column) - cell_len(text))
                    line.append(text + space if head in self.names else space + text)
                lines.append(_GAP.join(line))
            if row == 0:
                lines.append("─" * _width(columns))
        # A name wider than the terminal is the only thing that can still be too wide.
        return "\n".join(part for line in lines for part in _chop(line, width))


# Spaces, but not those within `[95% CI]`; in names also punctuation.
_SPACE = r"(?<= )(?![^\[]*\])"
_PUNCTUATION = r"(?<=\w\()(?!\d)|(?<=[,/])(?![\d ])|(?<=dynamic_)"


def _parts(name: str) -> list[str]:
    """Return the parts between which a name may be broken."""
    return re.split(f"{_SPACE}|{_PUNCTUATION}", name)


def _column_width(column: Sequence[Sequence[str]]) -> int:
    return max(cell_len(text) for cell in column for text in cell)


def _width(columns: Sequence[Sequence[Sequence[str]]]) -> int:
    return sum(map(_column_width, columns)) + len(_GAP) * (len(columns) - 1)


def _chop(line: str, width: int) -> list[str]:
    return [line[start : start + width] for start in range(0, max(len(line.rstrip()), 1), width)]


def wrap(text: str, width: int) -> list[str]:
    """Return `text` in lines of at most `width`, if no part between possible breaks is wider.

    It is broken at spaces; words wider than a line are broken as names are.
    """
    words = re.split(_SPACE, text) if text else []
    parts = ([word] if cell_len(word.rstrip()) <= width else _parts(word) for word in words)
    return _join(itertools.chain(*parts), width) if text else []


def _join(parts: Iterable[str], width: int) -> list[str]:
    """Return parts in lines of at most `width`, if no part is wider."""
    lines = [""]
    for part in parts:
        if lines[-1] and cell_len((lines[-1] + part).rstrip()) > width:
            lines.append("")
        lines[-1] += part
    return [line.rstrip() for line in lines]


def print_tables(tables: Iterable[TextTable]) -> None:
    """Print tables on standard output, at the width of the terminal."""
    for table in tables:
        sys.stdout.write(printable(table.text(terminal_width())) + "\n\n")
