"""How long certified bounds take, beside Su's published search, in one run.

python -m benchmarks.theory [--su 1024,2048,4096] [--json]
"""

import argparse
import json
import resource
import time
from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from theory import bound, published
from theory.family import rope_base

COMPARED = (
    "b*({length:,}): ours {ours:.9g} to {ours_precision:.0e} in {ours_cpu:.3f} s CPU; "
    "Su's search {su:.9g} to {su_precision:.0e} in {su_cpu:.1f} s CPU: {ratio:,.0f} times"
)


def measured(function: Callable, *arguments) -> tuple:
    """The result, CPU seconds of all threads, and wall seconds."""
    cpu, wall = time.process_time(), time.perf_counter()
    result = function(*arguments)
    return result, time.process_time() - cpu, time.perf_counter() - wall


@partial(jax.jit, static_argnames=("length", "head_dim"))
def _lowest(base, *, length, head_dim):
    """Smallest B_m over m < length, in float32 as in Su's post."""
    exponents = jnp.arange(0, head_dim, 2) / head_dim
    return jnp.cos(jnp.arange(length)[:, None] * base**-exponents).sum(axis=1).min()


def su_search(length: int, head_dim: int = 128) -> tuple[float, float]:
    """Su's search: five grids, each ten times finer, from 0 to the smallest base found so far.

    Returns:
      (the smallest feasible base seen, the last grid's spacing relative to it).
    """
    _lowest(2.0, length=length, head_dim=head_dim)  # compiled before the clock matters
    best = spacing = 1000.0 * length
    for digits in range(1, 6):
        grid = best * np.arange(1, 10**digits + 1) / 10**digits
        spacing = best / 10**digits
        feasible = [float(_lowest(base, length=length, head_dim=head_dim)) >= 0 for base in grid]
        best = float(grid[feasible.index(True)])
    return best, spacing / best


def compared(length: int) -> dict:
    """Our search and Su's of one length, and how many times our CPU time his takes."""
    # The first call warms caches; ours is so short that the clock would show nothing else.
    ours, ours_cpu, _ = min(
        (measured(bound.smallest_base, length) for _ in range(3)), key=lambda m: m[1]
    )
    (base, spacing), su_cpu, _ = measured(su_search, length)
    return {
        "length": length,
        "ours": ours.high,
        "ours_precision": ours.high / ours.low - 1,
        "ours_cpu": ours_cpu,
        "su": base,
        "su_precision": spacing,
        "su_cpu": su_cpu,
        "ratio": su_cpu / ours_cpu,
    }


def run(su_lengths: Sequence[int]) -> dict:
    """All measurements, as one JSON object."""
    single, cpu, wall = measured(bound.smallest_base, 2**17)
    comparison = [compared(length) for length in su_lengths]
    _, all_cpu, all_wall = measured(bound.smallest, rope_base(128), published.LENGTHS)
    return {
        "single": {"length": 2**17, "base": single.high, "cpu": cpu, "wall": wall},
        "comparison": comparison,
        "all_lengths": {"cpu": all_cpu, "wall": all_wall},
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.theory", description=__doc__)
    parser.add_argument(
        "--su", default="1024,2048,4096", help="lengths of Su's search; '' for none"
    )
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    record = run([int(length) for length in args.su.split(",") if length])
    if args.json:
        print(json.dumps(record))
        return
    single, every = record["single"], record["all_lengths"]
    print(f"b*({single['length']:,}): {single['cpu']:.1f} s CPU, {single['wall']:.1f} s")
    print(f"all eleven lengths 1k to 1M: {every['cpu']:.1f} s CPU, {every['wall']:.1f} s")
    print(f"peak memory {record['peak_memory_mib']:,.0f} MiB")
    for row in record["comparison"]:
        print(COMPARED.format_map(row))


if __name__ == "__main__":
    main()
