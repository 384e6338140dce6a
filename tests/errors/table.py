"""Rows of the table of errors, and a way to run one.

A file of this folder is an area; its `ROWS` are found by walking. A row needs no test of its own:

    Row("train.py tinny --workdir new", "unknown config 'tinny'; did you mean 'tiny'? (valid: {})")
    Row(lambda: Rope(base=1.0), "base must be a finite number above 1, got 1.0")

`test_table.py` runs each in an empty folder of its own, which holds at its start `runs/data` (the
tests' prepared data), the row's `files`, and, with `run=True`, a finished run of `tiny` in `run`.
"""

import dataclasses
import importlib
import re
import shlex
import sys
from collections.abc import Callable, Mapping

import pytest


@dataclasses.dataclass(frozen=True)
class Row:
    """One wrong input and what is said of it.

    Attributes:
      do: a command line, run through its `main` in this process, or what raises a ValueError.
      says: the whole message, without the command's name; `{}` stands for any words.
      files: by path, what lies in the folder before.
      given: what else is done before.
      run: whether a trained run lies in `run`.
      code: how a command exits.
    """

    do: str | Callable[[], object]
    says: str
    _: dataclasses.KW_ONLY
    files: Mapping[str, str | bytes] = dataclasses.field(default_factory=dict)
    given: Callable[[pytest.MonkeyPatch], object] = lambda patch: None
    run: bool = False
    code: int = 2

    def fits(self, message: str) -> bool:
        """Return whether `message` is the one this row expects."""
        return re.fullmatch(re.escape(self.says).replace(r"\{\}", ".*"), message) is not None


def main_of(command: str) -> Callable[[], int | None]:
    """The `main` of `train.py ...` or `-m theory ...`."""
    first, second = [*shlex.split(command), ""][:2]
    module = importlib.import_module(second if first == "-m" else first.removesuffix(".py"))
    if hasattr(module, "__path__"):
        module = importlib.import_module(f"{second}.__main__")
    return module.main


def run_command(command: str, patch: pytest.MonkeyPatch) -> int:
    """Run a command line in this process and return its exit code."""
    main = main_of(command)
    arguments = shlex.split(command)
    patch.setattr(sys, "argv", arguments[1:] if arguments[0] == "-m" else arguments)
    try:
        return main() or 0
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
