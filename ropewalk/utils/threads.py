"""Threads that compute results ahead of their consumer."""

import itertools
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

In = TypeVar("In")
Out = TypeVar("Out")


def map_ahead(
    function: Callable[[In], Out], items: Iterable[In], *, num_threads: int, ahead: int
) -> Iterator[Out]:
    """Yield `function(item)` in order; at most `ahead` items are computed or in memory."""
    items = iter(items)
    with ThreadPoolExecutor(num_threads) as threads:
        running = deque(threads.submit(function, item) for item in itertools.islice(items, ahead))
        while running:
            yield running.popleft().result()
            running.extend(threads.submit(function, item) for item in itertools.islice(items, 1))


def num_cpus() -> int:
    """Return the number of CPUs that this process may use; SLURM may grant fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
