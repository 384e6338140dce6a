"""Run a command in this process: starting Python and JAX takes seconds."""

import importlib
import shlex
import sys

import pytest


def run_command(command: str, patch: pytest.MonkeyPatch) -> int:
    """Run `train.py ...` or `-m theory ...` through its `main`; return the exit status."""
    first, *rest = shlex.split(command)
    if first == "-m":
        module = importlib.import_module(rest[0])
        if hasattr(module, "__path__"):
            module = importlib.import_module(f"{rest[0]}.__main__")
        patch.setattr(sys, "argv", rest)
    else:
        module = importlib.import_module(first.removesuffix(".py"))
        patch.setattr(sys, "argv", [first, *rest])
    try:
        return module.main() or 0
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
