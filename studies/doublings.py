"""How far a run is trained: doublings of tokens, until nothing moves any more.

A model is measured after a schedule that has come to its end, warmup, constant learning rate, decay
("wsd": Hu et al., arXiv 2404.06395), and these schedules share their constant part: the trunk is
trained once, through all doublings, and each measurement decays a copy of it. What is measured is
bit for bit the run that `train.py` makes of the same config from scratch.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

from experiment.config import ExperimentConfig, TrainConfig
from studies.card import Card

# Of a card's budget of tokens; the last one only where the one before did not end it.
SHARES = (1 / 8, 1 / 4, 1 / 2, 1, 2)

# Converged: by less than this many octaves of L50, and this much mean accuracy, does the last
# doubling move a model that has learned its task.
OCTAVES, ACCURACY, CEILING = 0.1, 0.02, 0.9


def levels(card: Card, config: ExperimentConfig) -> list[ExperimentConfig]:
    """A member's config after each doubling, ascending; of a card without a budget its own alone.

    Args:
      config: of a member, as `Card.configs` gives it: its steps are the budget's.

    Raises:
      ValueError: if the budget is too small for that.
    """
    if card.tokens is None:
        return [config]
    budget, warmup = config.train.num_steps, config.train.warmup_steps
    if constant_steps(config.train) // 8 <= warmup:
        raise ValueError(
            f"card {card.name}: its budget of {card.tokens} tokens is {budget} steps, an "
            f"eighth of which does not pass train.warmup_steps={warmup}; change one of them"
        )
    numbers = [round(share * budget) for share in SHARES]
    return [dataclasses.replace(config, train=_steps(config.train, n)) for n in numbers]


def _steps(train: TrainConfig, num_steps: int) -> TrainConfig:
    return dataclasses.replace(train, num_steps=num_steps)


def constant_steps(train: TrainConfig) -> int:
    """Updates of a "wsd" run before the first one whose learning rate has begun to fall."""
    return math.floor((1 - train.decay_fraction) * train.num_steps)


def trunk(config: ExperimentConfig) -> ExperimentConfig:
    """What trains the constant part of a "wsd" config, and no more."""
    train = _steps(config.train, constant_steps(config.train))
    return dataclasses.replace(config, train=dataclasses.replace(train, schedule="constant"))


class Reached(NamedTuple):
    """What a run came to: see `studies.rows.Row`."""

    l50: float
    mean_accuracy: float
    ceiling: float


def ended(reached: Sequence[Reached], num_levels: int) -> str:
    """Why a run ends here, in the words of `studies.rows.Row.final`; empty if it goes on.

    Args:
      reached: after each doubling so far.
      num_levels: of `levels`.
    """
    if num_levels == 1:
        return "as planned"
    if len(reached) > 1 and has_converged(*reached[-2:]):
        return "converged"
    return "not converged" if len(reached) == num_levels else ""


def has_converged(before: Reached, now: Reached) -> bool:
    """Whether a doubling moved little. Beyond all distances twice is no move."""
    if not now.ceiling >= CEILING:
        return False
    both_beyond = before.l50 == now.l50 == math.inf
    # From or to beyond all distances, or not learned, differ by inf or nan: that is a move.
    still = both_beyond or abs(math.log2(now.l50) - math.log2(before.l50)) < OCTAVES
    return still and abs(now.mean_accuracy - before.mean_accuracy) < ACCURACY
