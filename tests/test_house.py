"""Limits on the size of functions and the lines of code in all."""

import ast
import io
import tokenize
from pathlib import Path

from tests.test_imports import ROOT, SOURCES

MAX_LINES = 80


def test_a_function_fits_a_screen():
    sizes = {}
    for path in SOURCES.values():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                sizes[path, node.name] = node.end_lineno - node.lineno + 1
    assert len(sizes) > 500  # a walk that finds nothing would pass everything
    assert {n: size for n, size in sizes.items() if size > MAX_LINES} == {}


# Lines of code without docstrings, comments and blank lines, with 300 lines of slack. Both totals
# only fall; a commit that raises one says which feature needs the lines.
MAX_CODE, MAX_TESTS = 28_173, 15_892
_NO_CODE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE),
    *(tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER),
}


def count_code_lines(path: Path) -> int:
    """Return the number of lines with code."""
    text = path.read_text(encoding="utf-8")
    docstrings, code = set(), set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                docstrings |= {*range(first.lineno, (first.end_lineno or first.lineno) + 1)}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            code |= {*range(token.start[0], token.end[0] + 1)}
    return len(code - docstrings)


def test_totals_of_code_and_tests():
    tests = sum(map(count_code_lines, (ROOT / "tests").rglob("*.py")))
    code = sum(map(count_code_lines, (*SOURCES.values(), *(ROOT / "notebooks").rglob("*.py"))))
    assert tests > 1000 and code > 1000  # a walk that finds nothing would pass everything
    assert tests <= MAX_TESTS and code <= MAX_CODE
