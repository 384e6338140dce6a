"""Functions in processes of their own that take turns: what a process is set up with once, its
devices and threads, can differ between them.
"""

import contextlib
import importlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import jax

from benchmarks import machine


@contextlib.contextmanager
def process(function: str, *given: object) -> Iterator[Callable[[], None]]:
    """A process that has called `function`, and calls what that returned whenever it is told to.

    Args:
      function: `module:name`; it returns what is to be timed.
      given: its arguments, as JSON has them.

    Raises:
      RuntimeError: if the process ended; what it said stands above.
    """
    words = [sys.executable, "-m", "benchmarks.turns", function, json.dumps(given)]
    with subprocess.Popen(
        words, cwd=machine.ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin and child.stdout

        def call() -> None:
            assert child.stdin and child.stdout
            with contextlib.suppress(BrokenPipeError):
                child.stdin.write("\n")
                child.stdin.flush()
            if not child.stdout.readline():
                raise RuntimeError(f"{function} ended with {child.wait()}")

        yield call
        child.stdin.close()


def _serve(function: str, given: str) -> None:
    module, _, name = function.partition(":")
    call = getattr(importlib.import_module(module), name)(*json.loads(given))
    for _ in sys.stdin:
        start = time.perf_counter()
        jax.block_until_ready(call())
        print(time.perf_counter() - start, flush=True)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
