"""Frequencies that maximize the forecast mean accuracy of key-value recall (the minimal head).

A search over the quantiles of log frequency, of all heads together or of each head. Recall alone
needs no rotation, so each pair must make some cycles within the length, by which other layers or
tasks could tell positions apart.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from data.tasks.kv import Kv, place
from data.tokenizer import NUM_VALUES
from experiment.config import TrainConfig
from theory.forecast import count_trials, learning_rates, make_layouts
from theory.minimal_head import Layouts, Positions, Training, simulate

_KNOTS = 4  # quantiles of a head's log frequencies
_BASES = 9  # single bases to compare with
_SEEDS = range(2)
_STILL = 1 / 16  # cycles within the length below which a pair does not rotate at all

Objective = Callable[[np.ndarray], float]


class Candidate(NamedTuple):
    """Frequencies `[N, R]`, radians per token, fastest first, and their forecast accuracy."""

    inv_freq_NR: np.ndarray
    accuracy: float


class Design(NamedTuple):
    """Result of the search.

    Attributes:
      best: the best frequencies of the search.
      base: the base of the best single base that meets the constraint.
      single: its frequencies.
    """

    best: Candidate
    base: float
    single: Candidate


def design(
    num_heads: int,
    head_dim: int,
    objective: Objective,
    *,
    slowest: float,
    per_head: bool = False,
    num_steps: int = 60,
) -> Design:
    """Search the frequencies of the heads of a layer; equal arguments give equal results.

    Args:
      num_heads: number of heads.
      head_dim: features of a head.
      objective: forecast mean accuracy of frequencies `[N, R]`.
      slowest: lowest frequency of a pair, radians per token.
      per_head: whether heads differ.
      num_steps: candidates of the search, after the single bases.
    """
    random, num_pairs = np.random.default_rng(0), head_dim // 2

    def evaluate(knots_NK: np.ndarray) -> Candidate:
        inv_freq_NR = make_frequencies(np.broadcast_to(knots_NK, (num_heads, _KNOTS)))
        return Candidate(inv_freq_NR, objective(inv_freq_NR))

    def make_frequencies(knots_NK: np.ndarray) -> np.ndarray:
        """Interpolate log frequencies: knots are shares of the way from 1 to the slowest."""
        x_R, x_K = np.linspace(0, 1, num_pairs), np.linspace(0, 1, _KNOTS)
        shares_NR = np.array([np.interp(x_R, x_K, np.sort(knots_K)) for knots_K in knots_NK])
        return slowest**shares_NR

    ends = np.linspace(0, 1, _BASES + 1)[1:]
    singles = [evaluate(np.linspace(0, end, _KNOTS)) for end in ends]
    index = int(np.argmax([single.accuracy for single in singles]))
    # The slowest pair of rope has base ** (2 / head_dim - 1) radians per token.
    base = float(slowest ** (-ends[index] * head_dim / (head_dim - 2)))
    best_knots = np.tile(np.linspace(0, ends[index], _KNOTS), (num_heads if per_head else 1, 1))
    best = singles[index]
    for step in range(num_steps):
        noise = random.normal(size=best_knots.shape) * 0.4 * 0.1 ** (step / num_steps)
        knots = np.clip(best_knots + noise, 0, 1)
        candidate = evaluate(knots)
        if candidate.accuracy >= best.accuracy:
            best, best_knots = candidate, knots
    return Design(best, base, singles[index])


def make_objective(
    length: int, distances: Sequence[int] = (), *, num_updates: int = 250, batch_size: int = 8
) -> Objective:
    """Return the forecast mean accuracy of recall in documents of `length` tokens.

    Args:
      length: tokens.
      distances: of questions, a sample in tokens; their mean counts. Empty: the task kv trains on
        all octaves alike, and every distance counts equally.
      num_updates, batch_size: updates of the training, and documents of each.

    Raises:
      ValueError: if no distance fits into the length.
    """
    train = TrainConfig(
        num_steps=num_updates,
        learning_rate=5e-3,
        schedule="wsd",
        warmup_steps=min(40, num_updates - 1),
        final_fraction=0.05,
    )
    training = Training(
        learning_rates=learning_rates(train),
        batch_size=batch_size,
        num_keys=Kv().keys,
        num_values=NUM_VALUES,
    )
    if len(distances):
        layouts, test = (_draw(length, distances, split) for split in (0, 1))
    else:
        layouts, test = (make_layouts(Kv(), length, split) for split in ("train", "test"))

    def objective(inv_freq_NR: np.ndarray) -> float:
        cycles_NR = inv_freq_NR * length / (2 * math.pi)
        positions = Positions(np.where(cycles_NR < _STILL, 0, inv_freq_NR))
        accuracy = simulate(positions, layouts, training, _SEEDS, test=test)
        if len(distances):
            return float(accuracy.is_correct_SA.mean())
        return float(count_trials(accuracy, _SEEDS).summed().summed().mean_accuracy())

    return objective


def _draw(length: int, distances: Sequence[int], split: int) -> Layouts:
    """Draw documents whose questions have distances of the sample."""
    possible = [distance for distance in distances if 1 <= distance <= length - 3]
    if not possible:
        raise ValueError(f"no distance is between 1 and {length - 3} tokens; give a longer length")
    task, documents = Kv(), []
    for number in range(1024 if split == 0 else 256):
        random = np.random.Generator(np.random.Philox((split, number)))
        wanted = task.num_answers(length, max(possible), random)
        drawn = sorted(random.choice(possible, wanted).tolist(), reverse=True)
        documents.append(place(drawn, task.pairs, length, max(possible), random))
    return Layouts.from_positions(documents, length)
