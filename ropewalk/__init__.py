"""ropewalk: pretrain Llama-like models from scratch, and measure what their RoPE does.

import ropewalk
run = ropewalk.load("runs/demo/base=10,num_heads=4")  # run.config, run.params, run.table
logits = run.logits("import numpy")  # float32 [B, T, V]
rows = ropewalk.rows("runs/demo")  # result rows as dicts, for pandas or polars
table = ropewalk.table("rope(base=10000)", head_dim=64, context_length=2048)
facts = ropewalk.audit("config.json")  # what the rotation of a published model does
"""

from typing import TYPE_CHECKING

import ropewalk.utils.environment  # noqa: F401 - first: it checks that packages are installed
from ropewalk.utils.lazy import lazy
from ropewalk.utils.version import __version__

if TYPE_CHECKING:
    from ropewalk.experiment.loaded import LoadedRun, load
    from ropewalk.public import audit, rows, table

__all__ = ["REPOSITORY", "LoadedRun", "__version__", "audit", "load", "rows", "table"]

# Address of this repository on GitHub, if it has one. After a change, `make notebooks` writes the
# badge "Open in Colab" into the notebooks.
REPOSITORY = ""

_MODULES = {
    "LoadedRun": "experiment.loaded",
    "load": "experiment.loaded",
    "audit": "public",
    "rows": "public",
    "table": "public",
}


# `import ropewalk` needs no JAX.
__getattr__ = lazy(__name__, _MODULES)


def __dir__() -> list[str]:
    return __all__
