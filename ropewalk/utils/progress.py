"""A progress bar for work that is measured in bytes."""

import contextlib
import functools
from collections.abc import Callable, Iterator

import rich.console
import rich.progress


@contextlib.contextmanager
def byte_progress(
    label: str, total: int, *, done: int = 0, transient: bool = False, disable: bool = False
) -> Iterator[Callable[[int], None]]:
    """Show a bar on standard error; yield a function that adds a number of bytes to it."""
    bar = rich.progress.Progress(
        *rich.progress.Progress.get_default_columns(),
        rich.progress.DownloadColumn(),
        rich.progress.TransferSpeedColumn(),
        console=rich.console.Console(stderr=True),
        transient=transient,
        disable=disable,
    )
    with bar:
        yield functools.partial(bar.advance, bar.add_task(label, total=total, completed=done))
