"""Limits on the size of functions, the number of parameters, and the lines of code in all."""

import ast
import functools
import io
import tokenize
from pathlib import Path

ROOT = Path(__file__).parent.parent
SKIPPED = {"tests", "runs", "build", "notebooks"}
TOPS = [top for top in ROOT.iterdir() if top.name not in SKIPPED and top.name[0] != "."]
SOURCES = [
    path
    for path in (*ROOT.glob("*.py"), *(path for top in TOPS for path in top.rglob("*.py")))
    if not path.is_symlink()  # of the package, to a command
]
MAX_LINES, MAX_PARAMETERS = 80, 7


def functions(path: Path):
    """Every function of a file: its name as `folder/file.py:name`, and its node."""
    where = path.relative_to(ROOT).as_posix()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{where}:{node.name}", node


@functools.cache
def all_functions():
    pairs = [pair for path in SOURCES for pair in functions(path)]
    assert len(pairs) > 500  # a walk that finds nothing would pass everything
    return pairs


def test_a_function_fits_a_screen():
    sizes = {name: node.end_lineno - node.lineno + 1 for name, node in all_functions()}
    assert {n: size for n, size in sizes.items() if size > MAX_LINES} == {}


def test_few_parameters():
    """Kernels take what their callers, JAX's own included, hand them."""
    counts = {}
    for name, node in all_functions():
        parameters = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        counts[name] = sum(parameter.arg not in ("self", "cls") for parameter in parameters)
    too_many = {name: count for name, count in counts.items() if count > MAX_PARAMETERS}
    assert {n: c for n, c in too_many.items() if not n.startswith("model/kernels/")} == {}


# Lines of code without docstrings, comments and blank lines. Both totals only fall; a commit that
# raises one says which feature needs the lines.
MAX_CODE, MAX_TESTS = 29_820, 19_660
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
    code = sum(map(count_code_lines, (*SOURCES, *(ROOT / "notebooks").rglob("*.py"))))
    assert tests > 1000 and code > 1000  # a walk that finds nothing would pass everything
    assert tests <= MAX_TESTS and code <= MAX_CODE
