"""Functions in separate processes that alternate: devices and threads are set up per process."""

import contextlib
import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator

import jax

from benchmarks import machine


@contextlib.contextmanager
def start(function: str, *arguments: object) -> Iterator[Callable[[], None]]:
    """Start a process that calls `function`; yield a function that calls its result there.

    Args:
      function: `module:name`; it returns the function to be timed.
      arguments: of `function`, as JSON values.

    Raises:
      RuntimeError: if the process ended; its own message is on standard error.
    """
    command = [sys.executable, "-m", "benchmarks.processes", function, json.dumps(arguments)]
    with subprocess.Popen(
        command, cwd=machine.ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:

        def call() -> None:
            assert child.stdin and child.stdout
            with contextlib.suppress(BrokenPipeError):
                child.stdin.write("\n")
                child.stdin.flush()
            if not child.stdout.readline():
                raise RuntimeError(f"{function} ended with {child.wait()}")

        yield call
        assert child.stdin
        child.stdin.close()


def _serve(function: str, arguments: str) -> None:
    module, _, name = function.partition(":")
    call = getattr(importlib.import_module(module), name)(*json.loads(arguments))
    for _ in sys.stdin:
        jax.block_until_ready(call())
        print(flush=True)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
