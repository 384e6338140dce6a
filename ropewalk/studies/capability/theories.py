"""Which theory forecasts the members of all cards? Errors of four of them, over members.

A theory forecasts L50 in tokens; a length implies a mean accuracy, of perfect recall up to it and
guesses beyond. The minimal head forecasts mean accuracy and accuracy by distance too, and has no
fitted constant. Its rivals have the constant that fits the members best.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ropewalk import evals, studies
from ropewalk.evals.estimate.bins import bin_number
from ropewalk.evals.estimate.effective_context import Estimate
from ropewalk.experiment.stages import count_tokens
from ropewalk.model.rotary.rope import Rope
from ropewalk.reporting.predictions import predict
from ropewalk.studies.capability import forecasts, results
from ropewalk.studies.card import Value
from ropewalk.studies.rows import Row

MINIMAL_HEAD, D_H, QUARTER, B_M = "minimal head", "D_H", "quarter period", "B_m < 0"
THEORIES = MINIMAL_HEAD, D_H, QUARTER, B_M
LEARNED = 0.9  # ceiling of a member that learned recall
_CONSTANTS = 2.0 ** np.arange(-4, 4, 0.02)
RESAMPLES = 2000


class Comparison(NamedTuple):
    """One member at one budget: the rows of all seeds beside the forecasts.

    Attributes:
      card, member: names.
      is_blind: whether all forecasts are older than the rows: those of the card are, and no older
        card has a forecast of equal inputs.
      answers: of the training.
      measured: estimate over all seeds.
      record: forecast by the minimal head, from `recall.json`.
      lengths: forecasts of L50 in tokens by theory; inf: beyond all distances.
      has_one_head: whether L50 describes the model.
      is_plain: whether it has one head of one base, and all of its parameters train.
      head_dim: features of a head.
      base: of its rotary variant; None: it has none.
    """

    card: str
    member: str
    is_blind: bool
    answers: int
    measured: Estimate
    record: dict[str, Any]
    lengths: dict[str, float]
    has_one_head: bool
    is_plain: bool
    head_dim: int
    base: float | None

    @property
    def is_learned(self) -> bool:
        """True if the measured ceiling is that of a model that learned recall."""
        return self.measured.ceiling >= LEARNED

    def octaves(self, tokens: float) -> float:
        """Return log2 of a length over measured L50; NaN without one, or if both are beyond.

        A length beyond the longest distance counts as that distance: the error is at least this.
        """
        longest = self.measured.longest
        if tokens >= longest and all(seed.beyond for seed in self.measured.seeds):
            return math.nan
        return math.log2(min(max(tokens, 1), longest) / results.l50_value(self.measured).value)

    def accuracy_error(self, tokens: float) -> float:
        """Return the error of the mean accuracy that a length implies."""
        measured = self.measured
        share = np.clip(tokens / (measured.longest - measured.shortest + 1), 0, 1)
        return float(share + (1 - share) * measured.chance) - measured.mean_accuracy

    @property
    def bias(self) -> float:
        """Forecast less measured mean accuracy of the minimal head."""
        return self.record["mean_accuracy"] - self.measured.mean_accuracy

    @property
    def curve_error(self) -> float:
        """Root mean square error of the minimal head's accuracy over half octaves of distance."""
        accuracy = {bin_number(low): value for low, value in self.record["bins"]}
        pairs = [
            (accuracy[number], item.accuracy)
            for item in self.measured.bins
            if (number := bin_number(item.low)) in accuracy
        ]
        return float(np.sqrt(np.mean(np.square(np.subtract(*np.transpose(pairs))))))


@functools.lru_cache(maxsize=1)
def compare(rows: tuple[Row, ...]) -> list[Comparison]:
    """Compare all stored forecasts of recall with the rows of the same tokens; equal runs once."""
    recall, bounds = forecasts.read(forecasts.RECALL), forecasts.read(forecasts.BOUNDS)
    comparisons, runs, older = [], set(), []
    for card in studies.load_cards("capability").values():
        for member, config in results.configs_of(card).items():
            bound = next(iter(bounds.get(card.name, {}).get(member, {}).values()), None)
            for budget in forecasts.recall_budgets(card, config):
                tokens = count_tokens(budget)
                record = recall.get(card.name, {}).get(member, {}).get(str(tokens))
                run = results.identity(budget), tokens
                seeds = [row for row in results.rows_of(budget, rows) if row.tokens == tokens]
                if record is None or bound is None or run in runs or not seeds:
                    continue
                runs.add(run)
                unique = {row.seed: row for row in sorted(seeds, key=lambda row: row.seed)}
                measured = results.estimate_rows(tuple(unique.values()), card.measurements[0].name)
                assert measured is not None  # a row of kv has answers
                table = config.model.position_table(config.data.context_length)
                frequencies = predict(table.inv_freq)
                one_head = config.model.num_heads * config.model.num_layers == 1
                rotary, inputs = config.model.rotary, _normalized(record["inputs"])
                comparison = Comparison(
                    card=card.name,
                    member=member,
                    is_blind=card.is_blind and inputs not in older,
                    answers=results.count_answers(seeds[0]),
                    measured=measured,
                    record=record,
                    lengths={
                        MINIMAL_HEAD: forecasts.l50_of(record),
                        D_H: forecasts.l50_of(bound),
                        QUARTER: frequencies.quarter_period,
                        B_M: float(frequencies.first_violation or math.inf),
                    },
                    has_one_head=one_head,
                    is_plain=one_head and type(rotary) is Rope and not config.train.frozen,
                    head_dim=config.model.head_dim,
                    base=getattr(rotary, "base", None),
                )
                comparisons.append(comparison)
                if not card.is_blind:
                    older.append(inputs)
    return comparisons


def _normalized(inputs: dict[str, Any]) -> dict[str, Any]:
    """Return inputs of a forecast with parsed tasks: kv and kv(keys=64) are the same."""
    names = "trained", "tested"
    return inputs | {name: [evals.parse(text) for text in inputs[name]] for name in names}


def select(items: Sequence[Comparison], low: float, high: float, **fields: Any) -> list[Comparison]:
    """Return the members with low to high thousand answers, and these attributes."""
    return [
        item
        for item in items
        if low <= item.answers / 1000 < high
        and all(getattr(item, name) == value for name, value in fields.items())
    ]


class Error(NamedTuple):
    """Root mean square error of a theory over members, and its fitted constant."""

    rms: Value
    constant: Value


def error(
    items: Sequence[Comparison], theory: str, *, of_accuracy: bool, fit: bool = True
) -> Error:
    """Return the error in octaves of L50, or of mean accuracy, with intervals over members.

    Intervals are quantiles of the bootstrap, which fits the constant again each time.

    Args:
      items: members; those that are censored on both sides have no error of L50.
      theory: one of `THEORIES`.
      of_accuracy: of the mean accuracy.
      fit: whether the length is multiplied by the constant that fits best; never the minimal
        head's.
    """
    if of_accuracy and theory == MINIMAL_HEAD:
        error_CM = np.array([[item.bias for item in items]])
    else:
        kind = Comparison.accuracy_error if of_accuracy else Comparison.octaves
        constants = _CONSTANTS if fit and theory != MINIMAL_HEAD else [1.0]
        error_CM = np.array([[kind(x, c * x.lengths[theory]) for x in items] for c in constants])
    # A member has no error at constants at which forecast and measurement are beyond all distances.
    valid_CM = ~np.isnan(error_CM)
    square_CM = np.where(valid_CM, error_CM, 0) ** 2
    num_members = len(items)
    draws_DM = np.random.default_rng(0).multinomial(
        num_members, np.full(num_members, 1 / num_members), size=RESAMPLES
    )
    weight_MD = np.vstack([np.ones(num_members), draws_DM]).T
    mean_CD = square_CM @ weight_MD / np.maximum(valid_CM @ weight_MD, 1)
    best_D = mean_CD.argmin(axis=0)
    constant_D = _CONSTANTS[best_D] if len(mean_CD) > 1 else np.ones(len(best_D))
    count = int(valid_CM[best_D[0]].sum())
    return Error(interval_of(np.sqrt(mean_CD.min(axis=0)), count), interval_of(constant_D, count))


def interval_of(values: np.ndarray, n: int) -> Value:
    """Return the first value, with the 95% interval of the others."""
    low, high = np.quantile(values[1:], (0.025, 0.975))
    return Value(float(values[0]), float(low), float(high), n, "members")
