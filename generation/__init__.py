"""Text from checkpoints: prompts in, what the model writes after them out.

from experiment import load
from generation import generate
[written] = generate(load("runs/demo/base=10"), ["import numpy"], max_new_tokens=20)
print(written.text)
"""

import importlib
from typing import Any

_WHERE = {"generate": "writing", "Generated": "writing", "Options": "options"}


def __getattr__(name: str) -> Any:
    # Late: `--help`, and a slip of the hand, do not need JAX.
    if name in _WHERE:
        return getattr(importlib.import_module(f"generation.{_WHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
