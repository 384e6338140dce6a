"""Measures of the house: functions that fit a screen, few parameters, comments that say why."""

import ast
import functools
import io
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SKIPPED = {"tests", "runs", "build", "notebooks"}
TOPS = [top for top in ROOT.iterdir() if top.name not in SKIPPED and top.name[0] != "."]
SOURCES = [*ROOT.glob("*.py"), *(path for top in TOPS for path in top.rglob("*.py"))]
MAX_LINES, MAX_PARAMETERS, MIN_COMMENTS = 80, 6, 4

# The loop reads from top to bottom, however long it is.
LONG = {"training/loop.py:_train"}


def functions(path: Path):
    """Every function of a file: its name as `folder/file.py:name`, and its node."""
    where = path.relative_to(ROOT).as_posix()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{where}:{node.name}", node


@functools.cache
def all_functions():
    found = [each for path in SOURCES for each in functions(path)]
    assert len(found) > 500  # a walk that finds nothing would pass everything
    return found


def test_a_function_fits_a_screen():
    sizes = {name: node.end_lineno - node.lineno + 1 for name, node in all_functions()}
    assert {n: size for n, size in sizes.items() if size > MAX_LINES and n not in LONG} == {}


def test_few_parameters():
    """Kernels take what their callers, JAX's own included, hand them."""
    counts = {}
    for name, node in all_functions():
        given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        counts[name] = sum(each.arg not in ("self", "cls") for each in given)
    too_many = {name: count for name, count in counts.items() if count > MAX_PARAMETERS}
    assert {n: c for n, c in too_many.items() if not n.startswith("model/kernels/")} == {}


def lines_and_comments(path: Path) -> tuple[int, int]:
    """Lines of code without docstrings, comments and blanks; and lines of comments."""
    source = path.read_text(encoding="utf-8")
    code, num_comments = set(), 0
    skipped = (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            num_comments += 1
        elif token.type not in skipped:
            code.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        if isinstance(node, documented) and ast.get_docstring(node) is not None:
            code -= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(code), num_comments


@pytest.mark.parametrize("folder", ["training", "model", "experiment"])
def test_comments_say_why(folder):
    counts = [lines_and_comments(path) for path in SOURCES if path.is_relative_to(ROOT / folder)]
    code, comments = map(sum, zip(*counts, strict=True))
    assert comments / code >= MIN_COMMENTS / 100, f"{comments} comments in {code} lines"
