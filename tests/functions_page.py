"""The page docs/functions.md, from signatures and docstrings.

python -m tests.functions_page > docs/functions.md
"""

import inspect
from collections.abc import Callable

import ropewalk
from ropewalk import inference, probes
from ropewalk.evals import runner
from ropewalk.interop import export, importing
from ropewalk.model import rotary
from ropewalk.theory import bound, capability, decay

FUNCTIONS = {
    "ropewalk.load": ropewalk.load,
    "ropewalk.rows": ropewalk.rows,
    "ropewalk.table": ropewalk.table,
    "ropewalk.audit": ropewalk.audit,
    "run.logits": ropewalk.LoadedRun.logits,
    "run.as_tokens": ropewalk.LoadedRun.as_tokens,
    "run.with_rotary": ropewalk.LoadedRun.with_rotary,
    "ropewalk.evals.runner.evaluate": runner.evaluate,
    "ropewalk.inference.generate": inference.generate,
    "ropewalk.probes.capture": probes.capture,
    "ropewalk.probes.view": probes.view,
    "ropewalk.interop.importing.import_folder": importing.import_folder,
    "ropewalk.interop.export.export": export.export,
    "ropewalk.model.rotary.parse": rotary.parse,
    "ropewalk.theory.bound.smallest_base": bound.smallest_base,
    "ropewalk.theory.decay.first_violation": decay.first_violation,
    "ropewalk.theory.decay.cosine_sum": decay.cosine_sum,
    "ropewalk.theory.capability.capability": capability.capability,
}
HEAD = """# Functions for scripts and notebooks

`run` is the result of `ropewalk.load`. `help(FUNCTION)` has the arguments with shapes and units,
the result and the errors. `python -m tests.functions_page > docs/functions.md` made this page.

| function | what it does |
|---|---|
"""


def page() -> str:
    """Return the page."""
    return HEAD + "".join(f"| `{n}{arguments(f)}` | {summary(f)} |\n" for n, f in FUNCTIONS.items())


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
