"""Tables of text for a terminal, by rich; also as Markdown."""

import dataclasses
import io
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from ropewalk.utils.messages import printable

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
      names: heads of text columns, which are left-aligned.
      optional: heads in the order in which a narrow terminal omits them.
    """

    title: str
    lines: Sequence[Mapping[str, str]]
    names: Sequence[str] = ("run",)
    optional: Sequence[str] = ()
    caption: str = ""

    @property
    def heads(self) -> list[str]:
        """Column heads in order of appearance, without columns in which every cell is a dash."""
        heads = dict.fromkeys(head for line in self.lines for head in line)
        return [
            head
            for head in heads
            if any(line.get(head, "-") not in ("-", "–") for line in self.lines)
        ]

    def text(self, width: int) -> str:
        """Return the table, in lines of at most `width` columns; `none` if it is empty."""
        console, heads = Console(file=io.StringIO(), width=width), self.heads
        unlimited, omitted = console.options.update(width=10**6), []
        for head in self.optional:
            needed = Measurement.get(console, unlimited, self._table(heads)).maximum
            if head in heads and needed > width:
                omitted.append(head)
                heads.remove(head)
        caption = [self.caption, f"omitted here: {', '.join(omitted)}" if omitted else ""]
        console.print(Text(self.title))
        console.print(self._table(heads) if heads else "none")
        console.print(Text("; ".join(filter(None, caption))), end="")
        text = console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]
        return "\n".join(line.rstrip() for line in text.rstrip().split("\n"))

    def markdown(self) -> str:
        """Return all columns as Markdown."""
        rows = [self.heads, ["---"] * len(self.heads)]
        rows += [[line.get(head, "") for head in self.heads] for line in self.lines]
        lines = ["| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in rows]
        parts = [f"**{self.title}**", "\n".join(lines), self.caption]
        return "\n\n".join(part for part in parts if part)

    def _table(self, heads: Sequence[str]) -> Table:
        table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
        for head in heads:
            justify = "left" if head in self.names else "right"
            # A head is no wider than its column, if its words are not.
            widest = max(max(len(line.get(head, "")) for line in self.lines), 1)
            title = Text(textwrap.fill(head, widest, break_long_words=False))
            table.add_column(title, justify=justify, vertical="top", overflow="fold")
        for line in self.lines:
            table.add_row(*(Text(line.get(head, "")) for head in heads))
        return table


def print_tables(tables: Iterable[TextTable]) -> None:
    """Print tables on standard output, at the width of the terminal."""
    for table in tables:
        sys.stdout.write(printable(table.text(terminal_width())) + "\n\n")
