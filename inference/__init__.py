"""Text generation from checkpoints.

from ropewalk.experiment import load
from ropewalk.inference import generate
[result] = generate(load("runs/demo/base=10,num_heads=1"), ["import numpy"], max_new_tokens=20)
print(result.text)
"""

import importlib
from typing import Any

_MODULES = {"generate": "generation", "Generated": "generation", "Options": "options"}


def __getattr__(name: str) -> Any:
    # Import late: `--help` and invalid arguments do not need JAX.
    if name in _MODULES:
        return getattr(importlib.import_module(f"ropewalk.inference.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
