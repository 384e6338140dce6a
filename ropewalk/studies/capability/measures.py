"""Measures that the claims of this study name, and the table of its members.

A run that two cards share counts for both, up to the largest budget of each card.
"""

import functools
import json
import math
from collections.abc import Iterator, Sequence

import numpy as np

from ropewalk.evals.estimate.effective_context import (
    LOW_CEILING,
    MEASURED,
    NOT_LEARNED,
    Estimate,
    estimate_trials,
)
from ropewalk.evals.estimate.trials import Trials
from ropewalk.experiment.config import ExperimentConfig, deciding_fields
from ropewalk.experiment.stages import count_tokens
from ropewalk.model.rotary.rope import Rope
from ropewalk.reporting.page import Item, Table, format_caption
from ropewalk.studies.card import Card, Measure, Value, as_measure
from ropewalk.studies.rows import Row
from ropewalk.theory import decay

_RESAMPLES = 1000


@as_measure
def l50(card: Card, rows: Sequence[Row], member: str) -> Value | None:
    """L50 of a member in tokens; NaN if recall was not learned, or too little."""
    estimate = _estimate(_last_rows(card, rows, member))
    if estimate is None:
        return None
    if estimate.verdict in (NOT_LEARNED, LOW_CEILING):
        return Value(math.nan, -math.inf, math.inf, estimate.num_seeds)
    return Value(estimate.l50, estimate.ci_low, estimate.ci_high, estimate.num_learned)


@as_measure
def mean_accuracy(card: Card, rows: Sequence[Row], member: str) -> Value | None:
    """Mean accuracy of a member over distances, also where rows do not decide its L50."""
    estimate = _estimate(_last_rows(card, rows, member))
    if estimate is None:
        return None
    if estimate.verdict == NOT_LEARNED:
        return Value(math.nan, -math.inf, math.inf, estimate.num_seeds)
    ends = estimate.mean_accuracy_low, estimate.mean_accuracy_high
    return Value(estimate.mean_accuracy, *ends, estimate.num_seeds)


@as_measure
def difference(card: Card, rows: Sequence[Row], after: Measure, before: Measure) -> Value | None:
    """`after` minus `before`; half-widths of intervals add in quadrature."""
    a, b = after(card, rows), before(card, rows)
    if a is None or b is None:
        return None
    value, n = a.value - b.value, min(a.n, b.n)
    low = value - math.hypot(a.value - a.low, b.high - b.value)
    high = value + math.hypot(a.high - a.value, b.value - b.low)
    return Value(value, low, high, n, a.unit)


@as_measure
def octaves(card: Card, rows: Sequence[Row], measure: Measure) -> Value | None:
    """Log2 of a length."""
    value = measure(card, rows)
    if value is None or math.isnan(value.value):
        return value
    middle, low, high = (math.log2(x) if x > 0 else -math.inf for x in value[:3])
    return Value(middle, low, high, value.n, value.unit)


def rise(before: str, after: str) -> Measure:
    """Return the measure of how many octaves L50 rises from one member to another."""
    return difference(octaves(l50(after)), octaves(l50(before)))


def gain(before: str, after: str) -> Measure:
    """Return the measure of how much mean accuracy rises from one member to another."""
    return difference(mean_accuracy(after), mean_accuracy(before))


@as_measure
def multiple(card: Card, rows: Sequence[Row], *, low: float, high: float) -> Value | None:
    """L50 over the theory length, geometric mean over the plain models of all cards.

    Each model counts once, at its smallest budget of `low` to `high` thousand trained answers.
    """
    logs = list(_plain_multiples(rows, low, high).values())
    if len(logs) < 2:
        return None
    value = Value.over(logs, "models")
    return value._replace(value=2**value.value, low=2**value.low, high=2**value.high)


@as_measure
def growth(
    card: Card, rows: Sequence[Row], *, early: list[float], late: list[float]
) -> Value | None:
    """Octaves by which `multiple` rises, over the models that have both budgets."""
    before, after = (_plain_multiples(rows, *ends) for ends in (early, late))
    logs = [after[name] - before[name] for name in before.keys() & after.keys()]
    return Value.over(sorted(logs), "models") if len(logs) > 1 else None


def _plain_multiples(rows: Sequence[Row], low: float, high: float) -> dict[str, float]:
    """Return log2 of L50 over the theory length, by model, where recall ends within the distances.

    A plain model has one head of 64 features and one base, and all of its parameters train.
    """
    logs = {}
    for name, runs in _by_identity(tuple(rows)).items():
        model = runs[0].config.model
        is_single = model.num_layers * model.num_heads == 1 and model.head_dim == 64
        if not is_single or type(model.rotary) is not Rope or runs[0].config.train.frozen:
            continue
        budgets = [row.tokens for row in runs if low <= count_answers(row) / 1000 < high]
        seeds = [row for row in runs if budgets and row.tokens == budgets[0]]
        estimate = _estimate(tuple({row.seed: row for row in seeds}.values()))
        first = decay.first_violation(model.rotary.inv_freq(model.head_dim))
        if estimate and first and estimate.verdict == MEASURED:
            logs[name] = math.log2(estimate.l50 / first)
    return logs


def sections(cards: Sequence[Card], rows: Sequence[Row]) -> Iterator[Item]:
    """Yield the table of the members of each card, a line for each budget."""
    for card in (card for card in cards if card.members):
        lines = []
        for member, config in _configs_of(card).items():
            runs = [row for row in _rows_of(config, rows) if row.card == card.name]
            for tokens in sorted({row.tokens for row in runs}):
                seeds = [row for row in runs if row.tokens == tokens]
                if estimate := _estimate(tuple(seeds)):
                    lines.append((None, _cells(member, seeds[0], estimate)))
        if lines:
            table = Table.from_cells(lines, caption=format_caption("study_members"))
            yield f"{card.name}: {card.question}", "", table


def _cells(member: str, row: Row, estimate: Estimate) -> dict[str, str]:
    inv_freq_R = row.config.model.position_table(row.config.data.context_length).inv_freq[0, 0]
    first = decay.first_violation(inv_freq_R)
    return {
        "member": member,
        "answers": f"{count_answers(row) / 1000:,.0f}k",
        "seeds": str(estimate.num_seeds),
        "theory length": "none" if first is None else f"{first:,}",
        "L50 [95% CI]": str(estimate),
        "worst bin": estimate.worst_text,
        "mean accuracy": estimate.mean_text,
    }


# --- rows ----------------------------------------------------------------------------------------


@functools.cache
def _identity(config: ExperimentConfig) -> str:
    """Return a text that is equal for runs that differ at most in card, seed and budget."""
    fields = deciding_fields(config)
    for name in ("seed", "data.seed", "train.num_steps"):
        del fields[name]
    return json.dumps(fields, default=str)


@functools.cache
def _configs_of(card: Card) -> dict[str, ExperimentConfig]:
    return card.configs()


@functools.lru_cache(maxsize=1)
def _by_identity(rows: tuple[Row, ...]) -> dict[str, list[Row]]:
    """Return the rows of each model, by ascending tokens."""
    runs: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: (row.tokens, row.seed)):
        runs.setdefault(_identity(row.config), []).append(row)
    return runs


def _rows_of(config: ExperimentConfig, rows: Sequence[Row]) -> list[Row]:
    """Return the rows of a config with any seed and budget, by tokens."""
    return _by_identity(tuple(rows)).get(_identity(config), [])


def _last_rows(card: Card, rows: Sequence[Row], member: str) -> tuple[Row, ...]:
    """Return the finished row of a member's largest budget, by ascending seed."""
    configs = _configs_of(card)
    largest = max(count_tokens(b) for config in configs.values() for b in card.budgets(config))
    by_seed = {
        row.seed: row
        for row in _rows_of(configs[member], rows)
        if row.final and (row.card == card.name or row.tokens <= largest)
    }
    return tuple(by_seed[seed] for seed in sorted(by_seed))


@functools.cache
def _estimate(rows: tuple[Row, ...]) -> Estimate | None:
    """Return the estimate over the seeds of one run; None without rows."""
    counts = [answers.counts for row in rows for answers in row.answers[:1] if answers.counts]
    if not counts:
        return None
    columns = [item.columns(row.seed) for row, item in zip(rows, counts, strict=True)]
    trials = Trials.from_counts(
        {name: np.concatenate([column[name] for column in columns]) for name in columns[0]},
        distances=(min(item.shortest for item in counts), max(item.longest for item in counts)),
        chance=counts[0].chance,
    )
    task, length = rows[-1].answers[0].task, rows[-1].answers[0].length
    return estimate_trials(trials, task=task, lengths=(length, length), resamples=_RESAMPLES)


def count_answers(row: Row) -> int:
    """Return the answers of the training of a row's run, as documents of the evaluation have."""
    counts = next((item.counts for item in row.answers if item.counts is not None), None)
    documents = row.tokens / row.config.data.context_length
    return 0 if counts is None else round(documents * counts.asked.sum() / len(counts.asked))
