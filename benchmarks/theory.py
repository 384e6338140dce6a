"""Time of certified bounds, beside Su's published search."""

import resource
import time
from collections.abc import Callable, Iterator
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.record import Result
from benchmarks.suite import Setting
from theory import bound, published
from theory.family import rope_base

HEAD_DIM = 128
LENGTHS = (1024, 2048, 4096)  # of Su's search, which takes minutes beyond


def timed(function: Callable, *arguments) -> tuple:
    """Return the result, CPU seconds of all threads, and elapsed seconds."""
    cpu, wall = time.process_time(), time.perf_counter()
    result = function(*arguments)
    return result, time.process_time() - cpu, time.perf_counter() - wall


@partial(jax.jit, static_argnames="length")
def _smallest_b(base, *, length):
    """Return the smallest B_m over m < length, in float32 as in Su's post."""
    exponents = jnp.arange(0, HEAD_DIM, 2) / HEAD_DIM
    return jnp.cos(jnp.arange(length)[:, None] * base**-exponents).sum(axis=1).min()


def su_search(length: int) -> tuple[float, float]:
    """Run Su's search: five grids, each ten times finer, up to the smallest feasible base so far.

    Returns:
      (the smallest feasible base, the spacing of the last grid relative to it).
    """
    _smallest_b(2.0, length=length)  # compiles, which is not to be timed
    best = spacing = 1000.0 * length
    for digits in range(1, 6):
        grid = best * np.arange(1, 10**digits + 1) / 10**digits
        spacing = best / 10**digits
        feasible = [float(_smallest_b(base, length=length)) >= 0 for base in grid]
        best = float(grid[feasible.index(True)])
    return best, spacing / best


def measure(setting: Setting) -> Iterator[Result | str]:
    """Yield Su's CPU time over ours at several lengths; notes on single and all lengths."""
    for length in LENGTHS:
        # Our search is so short that the first call, which fills caches, would dominate.
        ours, our_cpu, _ = min(
            (timed(bound.smallest_base, length) for _ in range(3)), key=lambda item: item[1]
        )
        (base, spacing), su_cpu, _ = timed(su_search, length)
        yield Result.from_ratio(
            f"b*({length:,})",
            "CPU time of Su's search over ours",
            su_cpu / our_cpu,
            at_least=500,
            measured={"s, ours": our_cpu, "s, Su's": su_cpu},
        )
        yield (
            f"b*({length:,}): ours {ours.high:.9g} to {ours.high / ours.low - 1:.0e}, "
            f"Su's {base:.9g} to {spacing:.0e}"
        )
    _, cpu, wall = timed(bound.smallest_base, 2**17)
    yield f"b*(131,072): {cpu:.1f} s CPU, {wall:.1f} s"
    _, cpu, wall = timed(bound.smallest, rope_base(HEAD_DIM), published.LENGTHS)
    yield f"all eleven lengths 1k to 1M: {cpu:.1f} s CPU, {wall:.1f} s"
    yield f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MiB"
