"""Functions in separate processes that alternate: devices and threads are set up per process."""

import contextlib
import importlib
import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import jax

_functions: list[Callable[[], Any]] = []  # of a child process


@contextlib.contextmanager
def start(function: str, *arguments: object) -> Iterator[Callable[[], None]]:
    """Start a process that calls `function`; yield a function that calls its result there.

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


def _call() -> None:
    jax.block_until_ready(_functions[-1]())
