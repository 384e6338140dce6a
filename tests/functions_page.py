"""The page docs/functions.md, from signatures and docstrings.

python -m tests.functions_page > docs/functions.md
"""

import inspect
import pydoc
from collections.abc import Callable

NAMES = (
    "ropewalk.load",
    "ropewalk.rows",
    "ropewalk.table",
    "ropewalk.audit",
    "run.logits",
    "run.as_tokens",
    "run.with_rotary",
    "ropewalk.evals.runner.evaluate",
    "ropewalk.evals.generation.generate",
    "ropewalk.probes.capture",
    "ropewalk.probes.view",
    "ropewalk.interop.importing.import_folder",
    "ropewalk.interop.export.export",
    "ropewalk.model.rotary.parse",
    "ropewalk.theory.bound.smallest_base",
    "ropewalk.theory.decay.first_violation",
    "ropewalk.theory.decay.cosine_sum",
    "ropewalk.theory.capability.capability",
)
HEAD = """# Functions for scripts and notebooks

`run` is the result of `ropewalk.load`. `help(FUNCTION)` has the arguments with shapes and units,
the result and the errors. `python -m tests.functions_page > docs/functions.md` made this page.

| function | what it does |
|---|---|
"""


def page() -> str:
    """Return the page."""
    functions = {name: pydoc.locate(name.replace("run.", "ropewalk.LoadedRun.")) for name in NAMES}
    return HEAD + "".join(f"| `{n}{arguments(f)}` | {summary(f)} |\n" for n, f in functions.items())


def arguments(function: Callable) -> str:
    """Return the arguments of a function without their types."""
    signature = inspect.signature(function)
    parameters = [
        p.replace(annotation=p.empty) for n, p in signature.parameters.items() if n != "self"
    ]
    return str(signature.replace(parameters=parameters, return_annotation=signature.empty))


def summary(function: Callable) -> str:
    """Return the first paragraph of the docstring."""
    return " ".join((inspect.getdoc(function) or "").split("\n\n")[0].split())


if __name__ == "__main__":
    print(page(), end="")
