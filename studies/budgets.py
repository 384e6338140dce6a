"""Doubled budgets of tokens, until a doubling changes little.

A model is measured after a complete schedule of warmup, constant learning rate and decay ("wsd":
Hu et al., arXiv 2404.06395). The schedules of all budgets share their stable part, that of
constant learning rate: it trains once, and each measurement decays a copy of it. The measured
parameters are bit for bit those of `train.py` with the same config from scratch.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

from experiment.config import ExperimentConfig, TrainConfig
from experiment.stages import split
from studies.card import Card

# A run has converged if its accuracy at short distances is at least CEILING and the last doubling
# changed L50 by less than OCTAVES and mean accuracy by less than ACCURACY.
OCTAVES, ACCURACY, CEILING = 0.1, 0.02, 0.9


def make_budgets(card: Card, config: ExperimentConfig) -> list[ExperimentConfig]:
    """Return a member's config at each budget, ascending; without `card.tokens` the config alone.

    Args:
      card: the member's card.
      config: the member's config from `Card.configs`, whose steps are those of `card.tokens`.

    Raises:
      ValueError: if the smallest budget ends within the warmup.
    """
    if card.tokens is None:
        return [config]
    num_steps, warmup = config.train.num_steps, config.train.warmup_steps
    if stable_steps(config.train) * card.shares[0] < warmup + 1:
        raise ValueError(
            f"card {card.name}: its budget of {card.tokens} tokens is {num_steps} steps, and the "
            f"first share of it does not pass train.warmup_steps={warmup}; change one of them"
        )
    return [_with_train(config, num_steps=round(share * num_steps)) for share in card.shares]


def stable_steps(train: TrainConfig) -> int:
    """Return the updates of a "wsd" run before the first one with a lower learning rate."""
    return math.floor((1 - train.decay_fraction) * train.num_steps)


def make_stable(config: ExperimentConfig) -> ExperimentConfig:
    """Return the config of the stable part of a "wsd" run."""
    return _with_train(config, num_steps=stable_steps(config.train), schedule="constant")


def _with_train(config: ExperimentConfig, **changes) -> ExperimentConfig:
    return dataclasses.replace(config, train=dataclasses.replace(config.train, **changes))


def count_tokens(config: ExperimentConfig) -> int:
    """Return the number of tokens that a run of a config trains on, in all of its stages."""
    stage = split(config)[-1]
    data, steps = stage.config.data, stage.end - stage.start
    return stage.tokens_before + steps * data.batch_size * data.context_length


class Outcome(NamedTuple):
    """Result of a run after one budget; the fields are those of `studies.rows.Row`."""

    l50: float
    mean_accuracy: float
    ceiling: float


def final_status(outcomes: Sequence[Outcome], num_budgets: int) -> str:
    """Return why a run ends here, as in `studies.rows.Row.final`; empty if it continues.

    Args:
      outcomes: after each budget so far.
      num_budgets: budgets of the run.
    """
    if num_budgets == 1:
        return "as planned"
    if len(outcomes) > 1 and has_converged(*outcomes[-2:]):
        return "converged"
    return "not converged" if len(outcomes) == num_budgets else ""


def has_converged(before: Outcome, after: Outcome) -> bool:
    """Return whether a doubling changed little. Two infinite L50 count as equal."""
    if not after.ceiling >= CEILING:
        return False
    both_beyond = before.l50 == after.l50 == math.inf
    # If one L50 is infinite or NaN, so is the difference, and the comparison is false.
    is_stable = both_beyond or abs(math.log2(after.l50) - math.log2(before.l50)) < OCTAVES
    return is_stable and abs(after.mean_accuracy - before.mean_accuracy) < ACCURACY
