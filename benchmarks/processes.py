"""Functions in separate processes that alternate: devices and threads are set up per process."""

import contextlib
import importlib
import multiprocessing
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import jax

_functions: list[Callable[[], Any]] = []  # of a child process


@contextlib.contextmanager
def start(function: str, *arguments: object) -> Iterator[Callable[[], float]]:
    """Start a process that calls `function`; yield a function that calls its result there.

    The yielded function returns the CPU seconds of the call.

    Args:
      function: `module:name`; it returns the function to be timed.
      arguments: of `function`.

    Raises:
      Exception: what `function` or its result raised.
    """
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        pool.submit(_make, function, arguments).result()
        yield lambda: pool.submit(_call).result()


def _make(function: str, arguments: tuple) -> None:
    module, _, name = function.partition(":")
    _functions.append(getattr(importlib.import_module(module), name)(*arguments))


def _call() -> float:
    start = time.process_time()
    jax.block_until_ready(_functions[-1]())
    return time.process_time() - start
