"""Work done by threads, ahead of whoever waits for it."""

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
    """`function` of each item, in order; `ahead` items are under way, no more are in memory."""
    items = iter(items)
    with ThreadPoolExecutor(num_threads) as threads:
        running = deque(threads.submit(function, item) for item in itertools.islice(items, ahead))
        while running:
            yield running.popleft().result()
            running.extend(threads.submit(function, item) for item in itertools.islice(items, 1))


def num_cpus() -> int:
    """Those this process may use, where the system tells (SLURM grants few of many)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
