"""Tables on a terminal."""

import sys
from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Column, Table

from utils.messages import printable


def format_table(
    texts: Sequence[str], numbers: Sequence[str], lines: Iterable[Sequence[str]], **options: str
) -> str:
    """Return a table with columns of text, which may wrap, and then columns of numbers."""
    columns = [Column(head, overflow="fold") for head in texts]
    columns += [Column(head, justify="right", no_wrap=True) for head in numbers]
    options = {name: printable(text) for name, text in options.items()}
    table = Table(*columns, box=box.SIMPLE_HEAD, **options)  # pyright: ignore[reportArgumentType]
    for line in lines:
        table.add_row(*map(printable, line))
    # Without a terminal, a fixed width, so that a pipe does not cut the table.
    width = None if sys.stdout.isatty() else 120
    # Text of a file is not markup.
    console = Console(width=width, markup=False, emoji=False)
    with console.capture() as capture:
        console.print(table)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())
