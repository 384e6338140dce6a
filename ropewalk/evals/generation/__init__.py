"""Text generation from checkpoints.

from ropewalk.experiment import load
from ropewalk.evals.generation import generate
[result] = generate(load("runs/demo/base=10,num_heads=1"), ["import numpy"], max_new_tokens=20)
print(result.text)
"""

from ropewalk.utils.lazy import lazy

_MODULES = {"generate": "generation", "Generated": "text", "Options": "options"}


# `--help` and invalid arguments do not need JAX.
__getattr__ = lazy(__name__, _MODULES)
