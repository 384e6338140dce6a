"""Limits on the size of functions and the number of their parameters."""

import ast
import functools
from pathlib import Path

ROOT = Path(__file__).parent.parent
SKIPPED = {"tests", "runs", "build", "notebooks"}
TOPS = [top for top in ROOT.iterdir() if top.name not in SKIPPED and top.name[0] != "."]
SOURCES = [*ROOT.glob("*.py"), *(path for top in TOPS for path in top.rglob("*.py"))]
MAX_LINES, MAX_PARAMETERS = 80, 6


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
