"""Forecasts of recall by the minimal head, stored before any run, and their errors.

`theory.forecast` simulates each member that trains on kv, at two of its budgets. Accuracy by
distance, L50, mean accuracy and worst bin are stored in `studies/STUDY/recall.json`. Nothing is
fitted. `compare` sets them beside the rows of the same budgets.
"""

import concurrent.futures
import json
import math
import multiprocessing
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from evals.estimate.bins import bin_number
from evals.estimate.effective_context import MEASURED, Estimate, estimate_trials
from experiment.config import ExperimentConfig
from model import rotary as rotary_lib
from studies import budgets, folder
from studies.card import Card
from studies.forecasts import Forecasts, read_forecasts
from studies.results import make_trials
from studies.rows import Row
from theory.forecast import check, forecast
from theory.predictions import predict
from utils.files import write_atomically

_SHARES = 1 / 4, 1  # of a card's budget
_SEEDS = range(2)
_FILE = "recall.json"

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
                key, inputs = (card.name, member, str(_tokens(budget))), _inputs(budget)
                if stored.get(key[0], {}).get(key[1], {}).get(key[2], {}).get("inputs") != inputs:
                    wanted.append((key, inputs, budget))
    wanted.sort(key=lambda item: item[2].train.num_steps)
    unique = {json.dumps(inputs): budget for _, inputs, budget in wanted}
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
    return [levels[card.shares.index(share)] for share in _SHARES] if card.tokens else levels


def _tokens(config: ExperimentConfig) -> int:
    return config.train.num_steps * config.data.batch_size * config.data.context_length


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
    return json.loads(json.dumps(inputs))  # lists, as the file has them


def _forecast(config: ExperimentConfig) -> dict[str, Any]:
    estimate = forecast(config, _SEEDS).estimate
    numbers = ("l50", "ci_low", "ci_high", "mean_accuracy")
    values = {name: getattr(estimate, name) for name in numbers}
    numbers = {n: round(value, 4) if math.isfinite(value) else None for n, value in values.items()}
    return numbers | {
        "beyond": estimate.verdict == f"> {estimate.longest}",
        "worst": round(estimate.worst.accuracy, 4),
        "worst_distances": [estimate.worst.low, estimate.worst.high],
        # The first distance of each half octave, and accuracy from there to the next.
        "bins": [[item.low, round(item.accuracy, 4)] for item in estimate.bins],
    }


def describe(record: dict[str, Any]) -> str:
    """Return a stored forecast as text."""
    l50 = "not learned" if record["l50"] is None else f"{record['l50']:.3g}"
    return (
        f"L50 {'> ' * record['beyond']}{l50}, mean {record['mean_accuracy']:.2f}, "
        f"worst {record['worst']:.2f}"
    )


class Comparison(NamedTuple):
    """One member at one budget: the rows of all seeds beside the forecast.

    Attributes:
      card, member, tokens: of the rows.
      level: share of the card's budget.
      measured: estimate over all seeds.
      record: forecast by the minimal head, from `recall.json`.
      rivals: other lengths in tokens, by name.
      rmse: root mean square difference of accuracy over the half octaves of distance.
    """

    card: str
    member: str
    tokens: int
    level: float
    measured: Estimate
    record: dict[str, Any]
    rivals: dict[str, float]
    rmse: float

    @property
    def is_learned(self) -> bool:
        """Return whether the measured ceiling is that of a model that learned recall."""
        return self.measured.ceiling >= budgets.CEILING

    @property
    def is_censored(self) -> bool:
        """Return whether measured L50 is missing, or beyond the longest distance tested."""
        return self.measured.verdict != MEASURED

    def octaves(self, tokens: float) -> float:
        """Return log2 of a length over measured L50; both at most the longest distance."""
        tokens = min(max(tokens, 1), self.measured.longest)
        return math.log2(tokens / self.measured.l50)


def compare(
    cards: Sequence[Card], rows: Sequence[Row], recalls: Recalls, forecasts: Forecasts
) -> list[Comparison]:
    """Compare all stored forecasts with the rows of the same tokens.

    Equal members of several cards count once, where they have most seeds.
    """
    best: dict[str, Comparison] = {}
    for card in cards:
        first_measurement = card.measurements[0].name
        for member, config in card.configs().items():
            for level, budget in zip(_SHARES, _budgets(card, config), strict=False):
                tokens = _tokens(budget)
                record = recalls.get(card.name, {}).get(member, {}).get(str(tokens))
                answers = {
                    row.seed: answers
                    for row in rows
                    if (row.card, row.member, row.tokens) == (card.name, member, tokens)
                    for answers in row.answers
                    if answers.measurement == first_measurement and answers.task.startswith("kv")
                }
                if not record or not answers:
                    continue
                first, counts = next(iter(answers.values())), make_trials(answers)
                lengths = (first.length, config.data.context_length)
                comparison = Comparison(
                    card=card.name,
                    member=member,
                    tokens=tokens,
                    level=level,
                    measured=(
                        measured := estimate_trials(counts, task=first.task, lengths=lengths)
                    ),
                    record=record,
                    rivals=_rivals(config, forecasts.get(card.name, {}).get(member, {})),
                    rmse=_rmse(measured, record),
                )
                key = json.dumps(record["inputs"])
                if key not in best or best[key].measured.num_seeds < measured.num_seeds:
                    best[key] = comparison
    return list(best.values())


def _rivals(config: ExperimentConfig, forecasts: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Return lengths in tokens that depend on the frequencies alone, and D_H's forecast."""
    lengths = predict(config.model.position_table(config.data.context_length).inv_freq)
    first, record = lengths.first_violation, next(iter(forecasts.values()), None)
    rivals = {
        "quarter period": lengths.quarter_period,
        "theory length (B_m < 0)": math.inf if first is None else float(first),
    }
    if record and record["l50"] is not None:
        rivals["D_H"] = math.inf if record["beyond"] else float(record["l50"])
    return rivals


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
    """Errors of one predictor of L50 over members, in octaves.

    Attributes:
      name: of the predictor.
      rms, bias: root mean square and mean of the error, nothing fitted.
      rms_fitted: root mean square error with one constant factor fitted to these members.
      num_members: number of members.
    """

    name: str
    rms: float
    bias: float
    rms_fitted: float
    num_members: int


def errors(comparisons: Sequence[Comparison]) -> list[Error]:
    """Return the errors of the minimal head and of its rivals, over learned uncensored members."""
    octaves: dict[str, list[float]] = {}
    for item in comparisons:
        if item.is_learned and not item.is_censored:
            lengths = {"minimal head": item.record["l50"] or math.nan, **item.rivals}
            for name, tokens in lengths.items():
                octaves.setdefault(name, []).append(item.octaves(tokens))
    return [
        Error(name, _rms(x), float(np.mean(x)), float(np.std(x)), len(x))
        for name, x in octaves.items()
    ]


def report(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """Yield a line for each comparison, and the errors at each budget."""
    for item in comparisons:
        record, measured = item.record, item.measured
        octaves = ""
        if item.is_learned and not item.is_censored and record["l50"] is not None:
            octaves = f", {item.octaves(record['l50']):+.2f} octaves"
        yield (
            f"{item.card} {item.member}, {item.tokens / 1e6:.2g}M, {measured.num_seeds} seeds: "
            f"forecast {describe(record)}; measured L50 {measured}, "
            f"mean {measured.mean_accuracy:.2f}, worst {measured.worst.accuracy:.2f}"
            f"{octaves}, curve rmse {item.rmse:.2f}"
        )
    for level in sorted({item.level for item in comparisons}):
        group = [item for item in comparisons if item.level == level and item.is_learned]
        yield f"\n{level:g} of the budget, {len(group)} learned members"
        differences = {
            "accuracy by distance": [item.rmse for item in group],
            "mean accuracy": [
                item.record["mean_accuracy"] - item.measured.mean_accuracy for item in group
            ],
            "worst bin": [item.record["worst"] - item.measured.worst.accuracy for item in group],
        }
        for name, values in differences.items():
            yield f"  {name}: root mean square difference {_rms(values):.3f}"
        # L50 of several heads jumps over holes, so it says less than mean accuracy does.
        single = [item for item in group if item.record["inputs"]["num_heads"] == 1]
        for name, part in (("all uncensored", group), ("of one head", single)):
            for error in errors(part):
                yield (
                    f"  L50, {error.num_members} members {name}, {error.name}: {error.rms:.2f} "
                    f"octaves rms, bias {error.bias:+.2f}; {error.rms_fitted:.2f} with one fitted "
                    "constant"
                )


def _rms(values: Sequence[float] | np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(values))))
