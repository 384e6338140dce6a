"""Forecasts of recall by the minimal head, stored before any run, and their errors.

`theory.forecast` simulates each member that trains on kv, at two of its budgets. Accuracy by
distance, L50, mean accuracy and worst bin are stored in `studies/STUDY/recall.json`. Nothing is
fitted. `compare` sets them beside the rows of the same budgets, and marks them: with one head a
forecast is held if L50 is within `OCTAVES` and accuracy by distance within `ACCURACY` (root mean
square), with several heads, whose L50 jumps over holes, if accuracy by distance is. A member
exceeds its forecast if its L50 passes a finite one by more than `OCTAVES`.
"""

import collections
import concurrent.futures
import itertools
import json
import math
import multiprocessing
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from evals.estimate.bins import bin_number
from evals.estimate.effective_context import Estimate, estimate_trials
from experiment.config import ExperimentConfig
from model import rotary as rotary_lib
from studies import budgets, folder
from studies.card import Card
from studies.forecasts import Forecasts, read_forecasts
from studies.results import count_answers, identity, make_trials
from studies.rows import Row
from theory.forecast import check, forecast
from theory.predictions import predict
from utils.files import write_atomically

_SHARES = 1 / 4, 1  # of a card's budget
_SEEDS = range(2)
_FILE = "recall.json"

# The errors at which a forecast fails, and the bands of answers that errors are summarized in.
OCTAVES, ACCURACY = 0.3, 0.15
HELD, EXCEEDS, FAILED, NOT_LEARNED = "held", "exceeds", "failed", "not learned"
_BANDS = (0, 100_000, 300_000, math.inf)
_RESAMPLES = 500  # enough for the two digits of an interval
_CONSTANTS = 2.0 ** np.arange(-4, 4, 0.02)

# By card, member and tokens.
Recalls = dict[str, dict[str, dict[str, dict[str, Any]]]]


def read(study: str) -> Recalls:
    """Read the forecasts of a study by the minimal head; see `studies.forecasts.read_forecasts`."""
    return read_forecasts(study, _FILE)


def write(study: str, cards: Sequence[Card], num_workers: int | None = None) -> Iterator[str]:
    """Compute and store missing forecasts; yield a line for each.

    A stored forecast of the same inputs stays as it is. Members that the minimal head cannot
    forecast have none. Equal members of several cards are simulated once, short budgets first.
    """
    stored, wanted = read(study), []
    for card in cards:
        for member, config in card.configs().items():
            for budget in _budgets(card, config):
                tokens, inputs = str(budgets.count_tokens(budget)), _inputs(budget)
                key = card.name, member, tokens
                record = stored.get(card.name, {}).get(member, {}).get(tokens, {})
                if record.get("inputs") != inputs:
                    wanted.append((key, inputs, budget))
    wanted.sort(key=lambda item: item[2].train.num_steps)
    unique = {json.dumps(inputs): budget for _, inputs, budget in wanted}
    # Workers inherit this: products are small, and threads of two workers wait for each other.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(num_workers, context) as pool:
        for text, record in zip(unique, pool.map(_forecast, unique.values()), strict=True):
            for (card, member, tokens), inputs, _ in wanted:
                if json.dumps(inputs) == text:
                    by_tokens = stored.setdefault(card, {}).setdefault(member, {})
                    by_tokens[tokens] = {"inputs": inputs} | record
                    yield f"{card} {member}, {int(tokens) / 1e6:.2g}M: {describe(record)}"
            write_atomically(folder(study) / _FILE, json.dumps(stored, indent=1) + "\n")


def _budgets(card: Card, config: ExperimentConfig) -> list[ExperimentConfig]:
    """Return the budgets to forecast; none if the minimal head does not apply."""
    try:
        check(config)
    except ValueError:
        return []
    levels = budgets.make_budgets(card, config)
    if card.tokens is None:
        return levels
    return [level for level, share in zip(levels, card.shares, strict=True) if share in _SHARES]


def _inputs(config: ExperimentConfig) -> dict[str, Any]:
    """Return what a forecast depends on; `theory.forecast` reads nothing else of a config."""
    model, data, train = config.model, config.data, config.train
    names = ("num_layers", "num_heads", "head_dim", "embed_dim", "align_query_key", "window")
    inputs = {"rotary": rotary_lib.expression(model.rotary), "seeds": len(_SEEDS)}
    inputs |= {name: getattr(model, name) for name in names}
    inputs |= {"trained": data.retrieval_tasks, "tested": config.evals.tasks}
    inputs |= {"fraction": data.retrieval_fraction, "source": data.source}
    inputs |= {"lengths": (data.context_length, *config.evals.lengths)}
    inputs |= {"batch_size": data.batch_size, "masked_distances": model.masked_distances}
    names = ("num_steps", "learning_rate", "schedule", "warmup_steps", "final_fraction")
    names += ("decay_fraction", "weight_decay", "beta1", "beta2")
    inputs |= {name: getattr(train, name) for name in names}
    if train.frozen:
        inputs["frozen"] = train.frozen
    return json.loads(json.dumps(inputs))  # lists, as the file has them


def _forecast(config: ExperimentConfig) -> dict[str, Any]:
    recall = forecast(config, _SEEDS)
    estimate, learned = recall.estimate, {}
    if config.model.learned_frequencies:
        learned["inv_freq"] = recall.inv_freq_SNR.round(4).tolist()
    numbers = ("l50", "ci_low", "ci_high", "mean_accuracy")
    values = {name: getattr(estimate, name) for name in numbers}
    numbers = {n: round(value, 4) if math.isfinite(value) else None for n, value in values.items()}
    return (
        learned
        | numbers
        | {
            "beyond": estimate.verdict == f"> {estimate.longest}",
            "worst": round(estimate.worst.accuracy, 4),
            "worst_distances": [estimate.worst.low, estimate.worst.high],
            # The first distance of each half octave, and accuracy from there to the next.
            "bins": [[item.low, round(item.accuracy, 4)] for item in estimate.bins],
        }
    )


def describe(record: dict[str, Any]) -> str:
    """Return a stored forecast as text."""
    l50 = "not learned" if record["l50"] is None else f"{record['l50']:.3g}"
    return (
        f"L50 {'> ' * record['beyond']}{l50}, mean {record['mean_accuracy']:.2f}, "
        f"worst {record['worst']:.2f}"
    )


class Comparison(NamedTuple):
    """One member at one budget: the rows of all seeds beside the forecasts.

    Attributes:
      card: the card.
      member, tokens, answers: of the rows.
      measured: estimate over all seeds.
      record: forecast by the minimal head, from `recall.json`.
      lengths: forecasts of L50 in tokens by name, the minimal head's first; inf: beyond all
        distances.
      rmse: root mean square difference of accuracy over the half octaves of distance.
      repeats: another card and member with the same run; empty for the first.
    """

    card: Card
    member: str
    tokens: int
    answers: int
    measured: Estimate
    record: dict[str, Any]
    lengths: dict[str, float]
    rmse: float
    repeats: str = ""

    @property
    def is_learned(self) -> bool:
        """Return whether the measured ceiling is that of a model that learned recall."""
        return self.measured.ceiling >= budgets.CEILING

    @property
    def has_one_head(self) -> bool:
        """Return whether the model has one head, so that L50 describes it."""
        return self.record["inputs"]["num_heads"] * self.record["inputs"]["num_layers"] == 1

    def octaves(self, tokens: float) -> float:
        """Return log2 of a length over measured L50; NaN if both are beyond all distances.

        A length beyond the longest distance counts as that distance: the error is at least this.
        """
        measured = self.measured
        is_beyond = tokens >= measured.longest
        if is_beyond and measured.verdict.startswith(">"):
            return math.nan
        return math.log2(min(max(tokens, 1), measured.longest) / measured.l50)

    def accuracy_error(self, tokens: float) -> float:
        """Return the error of mean accuracy, if recall is perfect up to a length and then a guess.

        Every distance counts equally.
        """
        measured = self.measured
        share = np.clip(tokens / (measured.longest - measured.shortest + 1), 0, 1)
        return float(share + (1 - share) * measured.chance) - measured.mean_accuracy

    @property
    def mark(self) -> str:
        """Mark of the minimal head's forecast."""
        if not self.is_learned:
            return NOT_LEARNED
        octaves = self.octaves(self.lengths[MINIMAL_HEAD]) if self.has_one_head else 0.0
        if octaves < -OCTAVES:
            return EXCEEDS
        return FAILED if octaves > OCTAVES or self.rmse > ACCURACY else HELD

    @property
    def error_text(self) -> str:
        """Errors of the minimal head's L50, if it has one, and of its accuracy by distance."""
        octaves = self.octaves(self.lengths[MINIMAL_HEAD])
        text = f"{octaves:+.2f} octaves, " if math.isfinite(octaves) else ""
        return f"{text}curve {self.rmse:.2f}"


def compare(
    cards: Sequence[Card], rows: Sequence[Row], recalls: Recalls, forecasts: Forecasts
) -> list[Comparison]:
    """Compare all stored forecasts with the rows of the same tokens.

    Equal runs of several cards have all seeds, and all but the first say which run they repeat.
    """
    by_run: dict[tuple[str, int], dict[int, Row]] = {}
    for row in rows:
        by_run.setdefault((identity(row.config), row.tokens), {})[row.seed] = row
    firsts: dict[tuple[str, int], Comparison] = {}
    comparisons = []
    for card in cards:
        for member, config in card.configs().items():
            for budget in _budgets(card, config):
                key = identity(budget), budgets.count_tokens(budget)
                record = recalls.get(card.name, {}).get(member, {}).get(str(key[1]))
                if first := firsts.get(key):
                    repeats = f"{first.card.name} {first.member}"
                    comparisons.append(first._replace(card=card, member=member, repeats=repeats))
                elif record and key in by_run:
                    measured = _estimate(card, by_run[key])
                    bounds = forecasts.get(card.name, {}).get(member, {})
                    firsts[key] = Comparison(
                        card=card,
                        member=member,
                        tokens=key[1],
                        answers=count_answers(next(iter(by_run[key].values()))),
                        measured=measured,
                        record=record,
                        lengths=_lengths(config, record, bounds),
                        rmse=_rmse(measured, record),
                    )
                    comparisons.append(firsts[key])
    return comparisons


def _estimate(card: Card, run: Mapping[int, Row]) -> Estimate:
    """Estimate from the rows of all seeds at one budget, by the card's first measurement."""
    answers = {
        seed: answers
        for seed, row in sorted(run.items())
        for answers in row.answers
        if answers.measurement == card.measurements[0].name and answers.task.startswith("kv")
    }
    first = next(iter(answers.values()))
    trained_length = next(iter(run.values())).config.data.context_length
    lengths = first.length, trained_length
    trials = make_trials(answers)
    return estimate_trials(trials, task=first.task, lengths=lengths, resamples=_RESAMPLES)


MINIMAL_HEAD, D_H = "minimal head", "D_H"


def _lengths(
    config: ExperimentConfig, record: dict[str, Any], bounds: dict[str, dict[str, Any]]
) -> dict[str, float]:
    """Return the forecasts of L50 in tokens, by name."""
    predicted = predict(config.model.position_table(config.data.context_length).inv_freq)
    bound, first = next(iter(bounds.values())), predicted.first_violation
    return {
        MINIMAL_HEAD: math.inf if record["beyond"] else float(record["l50"] or 1),
        D_H: math.inf if bound["beyond"] else float(bound["l50"]),
        "quarter period": predicted.quarter_period,
        "B_m < 0": math.inf if first is None else float(first),
    }


def _rmse(measured: Estimate, record: dict[str, Any]) -> float:
    """Compare accuracy in the half octaves that both have."""
    accuracy = {bin_number(low): value for low, value in record["bins"]}
    pairs = [
        (item.accuracy, accuracy[number])
        for item in measured.bins
        if (number := bin_number(item.low)) in accuracy
    ]
    return _rms(np.subtract(*np.transpose(pairs)))


class Error(NamedTuple):
    """Errors of one predictor over some members.

    Attributes:
      rms: root mean square, nothing fitted.
      constant: factor of the predicted length that fits these members best.
      rms_fitted: root mean square with this factor.
      num_members: members with an error: one that is censored on both sides has none.
    """

    rms: float
    constant: float
    rms_fitted: float
    num_members: int


def errors(items: Sequence[Comparison], name: str, *, of_accuracy: bool = False) -> Error:
    """Return the errors of a predictor in octaves of L50, or of the mean accuracy that it implies.

    The minimal head forecasts mean accuracy itself, so it has no constant there.
    """

    def error(constant: float) -> np.ndarray:
        if of_accuracy and name == MINIMAL_HEAD:
            pairs = [(x.record["mean_accuracy"], x.measured.mean_accuracy) for x in items]
            return np.subtract(*np.transpose(pairs))
        lengths = [(item, constant * item.lengths[name]) for item in items]
        if of_accuracy:
            return np.array([item.accuracy_error(length) for item, length in lengths])
        octaves = np.array([item.octaves(length) for item, length in lengths])
        return octaves[~np.isnan(octaves)]

    fitted = [_rms(error(constant)) for constant in _CONSTANTS]
    best = int(np.argmin(fitted))
    raw = error(1.0)
    return Error(_rms(raw), float(_CONSTANTS[best]), fitted[best], len(raw))


def summaries(comparisons: Sequence[Comparison]) -> Iterator[dict[str, str]]:
    """Yield cells with the errors of each theory, by number of answers; equal runs count once."""
    learned = [item for item in comparisons if item.is_learned and not item.repeats]
    for low, high in itertools.pairwise(_BANDS):
        for is_blind in (True, False):
            group = [
                item
                for item in learned
                if low <= item.answers < high and item.card.is_blind == is_blind
            ]
            single = [item for item in group if item.has_one_head]
            for name in group[0].lengths if group else ():
                cells = _summary(group, is_blind) if name == MINIMAL_HEAD else {"members": ""}
                cells["theory"] = name
                of_mean, of_l50 = errors(group, name, of_accuracy=True), errors(single, name)
                cells["mean accuracy"] = f"{of_mean.rms:.3f}"
                if name != MINIMAL_HEAD:
                    cells["fitted"] = f"{of_mean.rms_fitted:.3f} with x{of_mean.constant:.2f}"
                if of_l50.num_members:
                    cells["L50, one head"] = f"{of_l50.rms:.2f} octaves of {of_l50.num_members}"
                    cells["L50 fitted"] = f"{of_l50.rms_fitted:.2f} with x{of_l50.constant:.2f}"
                yield cells


def _summary(group: Sequence[Comparison], is_blind: bool) -> dict[str, str]:
    """Return cells about the members of a group, and the minimal head's curves and marks."""
    counts = [item.answers / 1000 for item in group]
    order = "forecast before any row" if is_blind else "rows before forecast"
    marks = collections.Counter(item.mark for item in group)
    worst = [item.record["worst"] - item.measured.worst.accuracy for item in group]
    return {
        "members": f"{len(group)} {order}, {min(counts):,.0f}k to {max(counts):,.0f}k answers",
        "marks": ", ".join(f"{number} {mark}" for mark, number in marks.items()),
        "curve": f"{_rms([item.rmse for item in group]):.3f}",
        "worst bin": f"{_rms(worst):.3f}",
    }


def _rms(values: Sequence[float] | np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(values)))) if len(values) else math.nan
