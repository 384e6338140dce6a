"""Forecasts of this study, stored before any run.

`forecasts.json` has D_H's bound on the L50 of every member by measurement: the longest length up
to which the heads of some layer, at their best, would get half of the answers right at every
distance, among as many keys with random codes as a document of the task has. `recall.json` has the
recall that the minimal head simulates for each member that trains on kv, after a quarter and all of
its tokens. Neither has a fitted parameter. A stored forecast of the same inputs stays as it is.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ropewalk import evals
from ropewalk.experiment.config import ExperimentConfig
from ropewalk.experiment.stages import count_tokens
from ropewalk.model import rotary as rotary_lib
from ropewalk.reporting.predictions import bound
from ropewalk.studies.card import Card, Measurement
from ropewalk.theory import forecast as theory_forecast
from ropewalk.utils.files import write_atomically
from ropewalk.utils.limits import read_json

BOUNDS, RECALL = "forecasts.json", "recall.json"
_SHARES = 1 / 4, 1  # of a card's budget, whose recall is simulated
_SEEDS = range(2)


def read(file: str) -> dict[str, dict[str, dict[str, dict[str, Any]]]]:
    """Read a file of forecasts: by card, member, and measurement or tokens.

    Raises:
      ValueError: if the file is missing or damaged.
    """
    path = Path(__file__).with_name(file)
    try:
        return read_json(path)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: {error}; restore it: git checkout {file}") from None


def forecast(cards: Sequence[Card]) -> Iterator[str]:
    """Compute and store the missing forecasts of cards; yield a line for each."""
    bounds, recall = read(BOUNDS), read(RECALL)
    for card in cards:
        for member, config in card.configs().items():
            stored = bounds.setdefault(card.name, {}).setdefault(member, {})
            for measurement in card.measurements:
                inputs = _bound_inputs(config, measurement)
                record = stored.get(measurement.name, {})
                if record | inputs != record:
                    record = stored[measurement.name] = inputs | _bound(config, measurement, inputs)
                    yield f"{card.name} {member}, {measurement.name}: D_H {record['l50']}"
            for budget in recall_budgets(card, config):
                tokens, inputs = str(count_tokens(budget)), _recall_inputs(budget)
                stored = recall.setdefault(card.name, {}).setdefault(member, {})
                if stored.get(tokens, {}).get("inputs") != inputs:
                    stored[tokens] = {"inputs": inputs} | _recall(budget)
                    yield f"{card.name} {member}, {tokens} tokens: {describe(stored[tokens])}"
        for file, records in ((BOUNDS, bounds), (RECALL, recall)):
            path = Path(__file__).with_name(file)
            write_atomically(path, json.dumps(records, indent=1) + "\n")


def check_forecasts(cards: Sequence[Card]) -> None:
    """Raise ValueError if a member has no bound, or one of other inputs."""
    bounds = read(BOUNDS)
    for card in cards:
        for member, config in card.configs().items():
            for measurement in card.measurements if card.tokens else ():
                record = bounds.get(card.name, {}).get(member, {}).get(measurement.name, {})
                if record | _bound_inputs(config, measurement) != record:
                    raise ValueError(
                        f"card {card.name}, member {member} has no forecast of this model; first "
                        "run: ropewalk studies forecast capability"
                    )


def recall_budgets(card: Card, config: ExperimentConfig) -> list[ExperimentConfig]:
    """Return the budgets to forecast; none if the minimal head does not apply."""
    try:
        theory_forecast.check(config)
    except ValueError:
        return []
    budgets = zip(card.budgets(config), card.shares if card.tokens else (1,), strict=True)
    return [budget for budget, share in budgets if share in _SHARES]


def _bound_inputs(config: ExperimentConfig, measurement: Measurement) -> dict[str, Any]:
    """Return the inputs of a bound; `num_others` is None for a task without forecasts."""
    task = evals.parse((measurement.tasks or config.evals.tasks)[0])
    length, *_ = measurement.lengths or config.evals.lengths or (config.data.context_length,)
    return {
        "rotary": rotary_lib.expression(config.model.rotary),
        "num_layers": config.model.num_layers,
        "num_heads": config.model.num_heads,
        "head_dim": config.model.head_dim,
        "masked_heads": [list(pair) for pair in measurement.masked_heads],
        "num_others": task.num_others(config.data, length),
        # A pair of two ids at each end of a document.
        "longest": length - 3,
    }


def _bound(
    config: ExperimentConfig, measurement: Measurement, inputs: dict[str, Any]
) -> dict[str, Any]:
    """Return `l50` in tokens, and whether it is `beyond` all distances; None: no forecast."""
    if inputs["num_others"] is None:
        return {"l50": None, "beyond": None}
    numbers = {name: inputs[name] for name in ("num_others", "longest")}
    result = bound(
        config.model, config.data.context_length, masked_heads=measurement.masked_heads, **numbers
    )
    return {"l50": result.l50, "beyond": result.beyond}


def _recall_inputs(config: ExperimentConfig) -> dict[str, Any]:
    """Return what recall depends on; `theory.forecast` reads nothing else of a config."""
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


def _recall(config: ExperimentConfig) -> dict[str, Any]:
    result = theory_forecast.forecast(config, _SEEDS)
    estimate = result.estimate
    values = {
        name: round(value, 4) if math.isfinite(value := getattr(estimate, name)) else None
        for name in ("l50", "ci_low", "ci_high", "mean_accuracy")
    }
    values |= {
        "beyond": all(seed.beyond for seed in estimate.seeds),
        "worst": round(estimate.worst.accuracy, 4),
        "worst_distances": [estimate.worst.low, estimate.worst.high],
        # The first distance of each half octave, and accuracy from there to the next.
        "bins": [[item.low, round(item.accuracy, 4)] for item in estimate.bins],
    }
    if config.model.learned_variants:
        values["inv_freq"] = result.inv_freq_SNR.round(4).tolist()
    return values


def l50_of(record: Mapping[str, Any]) -> float:
    """Return L50 of a stored bound or forecast of recall, tokens.

    inf beyond all distances, 1 if recall is not learned, NaN if L50 is undetermined or not bounded.
    """
    if record["l50"] is None:
        return 1.0 if record.get("ci_low", math.nan) is None else math.nan
    return math.inf if record["beyond"] else record["l50"]


def describe(record: dict[str, Any]) -> str:
    """Return a stored forecast of recall as text."""
    l50 = f"{'> ' * record['beyond']}{record['l50'] or 0:.3g}"
    if record["l50"] is None:
        l50 = "not learned" if record["ci_low"] is None else "undetermined"
    return f"L50 {l50}, mean {record['mean_accuracy']:.2f}"
