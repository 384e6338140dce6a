"""Run a command in this process: starting Python and JAX takes seconds."""

import contextlib
import importlib
import io
import shlex
import signal
import sys
from collections.abc import Iterator

import jax
import pytest

from ropewalk.__main__ import COMMANDS


def run_command(command: str, patch: pytest.MonkeyPatch) -> int:
    """Run `train.py ...`, `export ...` or `-m theory ...` through its `main`; return its status."""
    jax.devices()  # from here on, no command changes their number
    # A process that has computed cannot look for others.
    patch.setattr(jax.distributed, "initialize", _find_nobody)
    first, *rest = shlex.split(command)
    if first == "-m":
        path, *rest = rest
        names = {path: name for name, (path, _) in COMMANDS.items()}
        first = f"ropewalk {names.get(path, path)}"
    else:
        path, _ = COMMANDS[first.removesuffix(".py")]
    module = importlib.import_module(f"ropewalk.{path}")
    if hasattr(module, "__path__"):
        module = importlib.import_module(f"ropewalk.{path}.__main__")
    is_part = path == "interop" and first in COMMANDS  # its parser reads the name
    patch.setattr(sys, "argv", ["ropewalk", first, *rest] if is_part else [first, *rest])
    try:
        return module.main() or 0
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)


def call(*arguments: object, status: int = 0) -> str:
    """Run `call("train.py", "tiny", ...)`, which must end with `status`; return what it printed."""
    ended, output = call_any(*arguments)
    assert ended == status, output
    return output


def call_any(*arguments: object) -> tuple[int, str]:
    """Run a command as `call`; return its exit status and what it printed."""
    output = io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(output),
    ):
        ended = run_command(shlex.join(map(str, arguments)), patch)
    return ended, output.getvalue()


@contextlib.contextmanager
def limit_time(seconds: float) -> Iterator[None]:
    """Fail if the body takes longer. C++ code that waits is not interrupted."""

    def stop(*_):
        raise AssertionError(f"waits for more than {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _find_nobody(*_):
    raise ValueError("coordinator_address should be defined.")
