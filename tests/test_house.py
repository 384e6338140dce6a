"""Limits on the size of folders and functions, and on the number of parameters."""

import ast
import collections
import functools
import io
import tokenize
from pathlib import Path

ROOT = Path(__file__).parent.parent
SKIPPED = {"tests", "runs", "build", "notebooks"}
TOPS = [top for top in ROOT.iterdir() if top.name not in SKIPPED and top.name[0] != "."]
SOURCES = [*ROOT.glob("*.py"), *(path for top in TOPS for path in top.rglob("*.py"))]
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


# Lines of code per folder, without docstrings, comments and blank lines. A feature stays within its
# folder's budget; a commit that raises one explains why.
BUDGETS = {
    "tests": 21913,
    "reporting": 2880,
    "evals": 2970,
    "interop": 2791,
    "data": 2463,
    "model": 2842,
    "probes": 2344,
    "experiment": 2302,
    "studies": 2431,
    "benchmarks": 1990,
    "theory": 2563,
    "training": 1497,
    "tpu": 1397,
    "configs": 780,
    "utils": 1361,
    "inference": 730,
    "notebooks": 315,
    "(commands)": 290,
}
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


def test_folders_stay_within_their_budgets():
    sizes = collections.Counter()
    for path in (*SOURCES, *(ROOT / "tests").rglob("*.py"), *(ROOT / "notebooks").rglob("*.py")):
        folder = path.relative_to(ROOT).parts[0]
        sizes["(commands)" if folder.endswith(".py") else folder] += count_code_lines(path)
    assert {f: (n, BUDGETS.get(f)) for f, n in sizes.items() if n > BUDGETS.get(f, 0)} == {}
    assert sizes["tests"] <= 0.8 * (sizes.total() - sizes["tests"])
