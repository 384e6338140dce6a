"""Times things by turns, so that a noisy machine is noisy for all of them."""

import statistics
import time
from collections.abc import Callable

import numpy as np

from experiment.config import ExperimentConfig


def alternate(functions: dict[str, Callable[[], None]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each call, in turn, `rounds` times, after one unmeasured call of each."""
    for function in functions.values():
        function()
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            seconds[name].append(time.perf_counter() - start)
    return seconds


def ratio(ours: list[float], theirs: list[float]) -> str:
    """`least / median`: of the fastest runs, and the median over turns."""
    median = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
    return f"{min(ours) / min(theirs):.2f} / {median:.2f}"


def milliseconds(seconds: list[float]) -> str:
    """`least / median` in ms."""
    return f"{min(seconds) * 1e3:.0f} / {statistics.median(seconds) * 1e3:.0f} ms"


def random_batch(config: ExperimentConfig) -> dict[str, np.ndarray]:
    """One document a row, every target counted: what costs most."""
    random = np.random.default_rng(0)
    B, T = config.data.batch_size, config.data.context_length
    tokens = random.integers(0, config.model.vocab_size, size=(B, T + 1)).astype(np.int32)
    return {
        "tokens": tokens[:, :-1],
        "targets": tokens[:, 1:],
        "positions": np.tile(np.arange(T, dtype=np.int32), (B, 1)),
        "segment_ids": np.ones((B, T), np.int32),
        "loss_mask": np.ones((B, T), np.float32),
    }
