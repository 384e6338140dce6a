"""Runs the command line of lm-evaluation-harness, which `interop.__main__` starts."""

import importlib.metadata
import json
import os
import sys
from typing import Any


def main(others: list[str], *, run_path: str, output_path: str, **model: Any) -> int:
    """Run the harness's command line with a run and the `others` of the arguments."""
    register()
    os.environ.setdefault("DISABLE_MULTIPROC", "1")  # compute standard errors in this process
    options = ["--model_args", json.dumps({"run": run_path, **model})]
    options += ["--output_path", output_path]
    sys.argv[:] = ["lm_eval", "run", "--model", "ropewalk", *options, *others]
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="lm_eval")
    script.load()()
    return 0


def register() -> type:
    """Return the harness's class for runs, and register it as `ropewalk`.

    Raises:
      ValueError: if lm-evaluation-harness is not installed.
    """
    try:
        from ropewalk.interop.lm_eval_model import RunLM  # late: it imports the harness
    except ImportError:
        raise ValueError(
            "lm_eval needs lm-evaluation-harness: run `make test-hf` once, or pip install lm-eval"
        ) from None
    return RunLM
