"""Estimates from the rows of this study.

A run that two cards share counts for both, up to the largest budget of each card.
"""

import functools
import json
import math
from collections.abc import Sequence

import numpy as np

from ropewalk.evals.estimate import effective_context
from ropewalk.evals.estimate.effective_context import Estimate, estimate_trials
from ropewalk.evals.estimate.trials import Trials
from ropewalk.experiment.config import ExperimentConfig, deciding_fields
from ropewalk.experiment.stages import count_tokens
from ropewalk.studies.card import Card, Value
from ropewalk.studies.rows import Answers, Row

WHOLE = "whole"  # name of a card's usual measurement
_RESAMPLES = 1000


@functools.cache
def identity(config: ExperimentConfig) -> str:
    """Return a text that is equal for runs that differ at most in card, seed and budget."""
    fields = deciding_fields(config)
    for name in ("seed", "data.seed", "train.num_steps"):
        del fields[name]
    return json.dumps(fields, default=str)


@functools.cache
def configs_of(card: Card) -> dict[str, ExperimentConfig]:
    """Return `card.configs()`."""
    return card.configs()


@functools.lru_cache(maxsize=1)
def _by_identity(rows: tuple[Row, ...]) -> dict[str, list[Row]]:
    runs: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row.tokens):
        runs.setdefault(identity(row.config), []).append(row)
    return runs


def rows_of(config: ExperimentConfig, rows: Sequence[Row]) -> list[Row]:
    """Return the rows of a config with any seed and budget, by tokens."""
    return _by_identity(tuple(rows)).get(identity(config), [])


def last_rows(card: Card, rows: Sequence[Row], member: str) -> tuple[Row, ...]:
    """Return the row of a member's largest budget, by ascending seed.

    If any seed is finished, those that are not are left out.
    """
    configs = configs_of(card)
    largest = max(count_tokens(b) for config in configs.values() for b in card.budgets(config))
    by_seed = {
        row.seed: row
        for row in rows_of(configs[member], rows)
        if row.card == card.name or row.tokens <= largest
    }
    last = tuple(by_seed[seed] for seed in sorted(by_seed))
    return tuple(row for row in last if row.final) or last


@functools.cache
def estimate_rows(rows: tuple[Row, ...], measurement: str) -> Estimate | None:
    """Return the estimate over the seeds of one run; None if there is no retrieval task."""
    if not (joined := join_trials(rows, measurement)):
        return None
    trials, answers = joined
    # Only the first length matters here, that of the evaluation.
    lengths = answers.length, answers.length
    return estimate_trials(trials, task=answers.task, lengths=lengths, resamples=_RESAMPLES)


def join_trials(rows: Sequence[Row], measurement: str) -> tuple[Trials, Answers] | None:
    """Return the counts of all seeds on the first retrieval task, and the last seed's answers."""
    answers = {
        row.seed: (item, item.counts)
        for row in rows
        for item in reversed(row.answers)
        if item.counts and item.measurement == measurement
    }
    if not answers:
        return None
    items, counts = zip(*answers.values(), strict=True)
    columns = [item.columns(seed) for seed, (_, item) in answers.items()]
    trials = Trials.from_counts(
        {name: np.concatenate([column[name] for column in columns]) for name in columns[0]},
        distances=(min(item.shortest for item in counts), max(item.longest for item in counts)),
        chance=counts[0].chance,
    )
    return trials, items[-1]


def count_answers(row: Row) -> int:
    """Return the answers of the training of a row's run, as documents of the evaluation have."""
    counts = next((item.counts for item in row.answers if item.counts is not None), None)
    documents = row.tokens / row.config.data.context_length
    return 0 if counts is None else round(documents * counts.asked.sum() / len(counts.asked))


def l50_value(estimate: Estimate) -> Value:
    """Return L50 in tokens with its interval; NaN if the task was not learned, or too little."""
    if estimate.verdict in (effective_context.NOT_LEARNED, effective_context.LOW_CEILING):
        return Value(math.nan, -math.inf, math.inf, estimate.num_seeds)
    return Value(estimate.l50, estimate.ci_low, estimate.ci_high, estimate.num_learned)
