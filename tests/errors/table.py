"""What a row of the table of errors is, and what became of one.

A file of this folder is an area; its `ROWS` are found by walking. A row needs no test of its own:

    Row("train.py tinny --workdir new", "unknown config 'tinny'; did you mean 'tiny'? (valid: {})")
    Row(lambda: Rope(base=1.0), "base must be a finite number above 1, got 1.0")

`test_table.py` runs each in an empty folder of its own, which holds at its start `runs/data` (the
tests' prepared data), the row's `files`, and, with `run=True`, a finished run of `tiny` in `run`.
"""

import ast
import dataclasses
import functools
import importlib
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.test_house import ROOT, SOURCES


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
        """Whether `message` is what this row expects."""
        return re.fullmatch(re.escape(self.says).replace(r"\{\}", ".*"), message) is not None


def main_of(command: str) -> Callable[[], int | None]:
    """The `main` of `train.py ...` or `-m theory ...`."""
    first, second = [*shlex.split(command), ""][:2]
    module = importlib.import_module(second if first == "-m" else first.removesuffix(".py"))
    if hasattr(module, "__path__"):
        module = importlib.import_module(f"{second}.__main__")
    return module.main


def run_command(command: str, patch: pytest.MonkeyPatch) -> tuple[int, BaseException | None]:
    """How a command line ends: its exit code, and the SystemExit that ended it, if one did."""
    main = main_of(command)
    words = shlex.split(command)
    patch.setattr(sys, "argv", words[1:] if words[0] == "-m" else words)
    try:
        return main() or 0, None
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None), stop


@functools.cache
def sites() -> dict[tuple[Path, int], str]:
    """Every line that raises a ValueError, or a kind of it, and its site: path and message."""
    texts = {path: path.read_text(encoding="utf-8") for path in SOURCES}
    nodes = [(path, node) for path in SOURCES for node in ast.walk(ast.parse(texts[path]))]
    kinds = {"ValueError"}
    for _, node in nodes:
        if isinstance(node, ast.ClassDef) and "ValueError" in map(ast.unparse, node.bases):
            kinds.add(node.name)
    found = {}
    for path, node in nodes:
        match node:
            case ast.Raise(exc=ast.Call(func=ast.Name(kind))) if kind in kinds:
                call = ast.get_source_segment(texts[path], node.exc) or ""
                first = call.removesuffix(")").partition("(")[2].strip().partition("\n")[0]
                name = f"{path.relative_to(ROOT).as_posix()}: {first}"
                for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                    found[path, line] = name
    assert len(set(found.values())) > 150  # a walk that finds nothing would pass everything
    return found


def raised_at(error: BaseException | None) -> Iterator[str]:
    """The sites that an exception, and those it was made from, come from."""
    if error is None:
        return
    trace = error.__traceback__
    while trace is not None:
        place = Path(trace.tb_frame.f_code.co_filename), trace.tb_lineno
        # Only where it was raised: what it passed through on its way is no site of its own.
        if trace.tb_next is None and place in sites():
            yield sites()[place]
        trace = trace.tb_next
    yield from raised_at(error.__context__)
    if error.__cause__ is not error.__context__:
        yield from raised_at(error.__cause__)
