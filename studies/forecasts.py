"""Bounds on L50 under random codes, computed from frequencies, heads and keys before any run.

All cards use one rule without fitted parameters. The bound is the longest length up to which the
heads of some layer, at their best, would get half of the answers right at every distance
(`theory.capability.forecast`), among as many keys with random codes as a document of the task has.
A window or masked distances end it where they start. Bounds are stored in
`studies/STUDY/forecasts.json`.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import evals
from experiment.config import ExperimentConfig
from model import rotary as rotary_lib
from reporting.forecasts import forecast
from studies import folder
from studies.card import Card, Measurement
from studies.jobs import Run
from utils.files import write_atomically
from utils.limits import read_json

# By card, member and measurement.
Forecasts = dict[str, dict[str, dict[str, dict[str, Any]]]]


def read_forecasts(study: str, file: str = "forecasts.json") -> Forecasts:
    """Read a file of forecasts of a study; empty if there is none.

    Raises:
      ValueError: if the file is damaged.
    """
    path = folder(study) / file
    try:
        return read_json(path) if path.exists() else {}
    except ValueError as error:
        raise ValueError(f"{path}: {error}; restore it") from error


def write(study: str, cards: Sequence[Card]) -> Iterator[str]:
    """Compute and store the forecasts of cards, card by card; yield a line for each member.

    A stored forecast of the same inputs stays as it is.
    """
    forecasts = read_forecasts(study)
    for card in cards:
        stored, forecasts[card.name] = forecasts.get(card.name, {}), {}
        for member, config in card.configs().items():
            records, texts = {}, []
            for measurement in card.measurements:
                name, inputs = measurement.name, _inputs(config, measurement)
                record = stored.get(member, {}).get(name, {})
                if not _matches(record, inputs):
                    record = inputs | _forecast(config, measurement, inputs)
                records[name] = record
                beyond = "> " if record["beyond"] else ""
                texts.append(f"{name} {beyond}{record['l50'] or 'nothing'}")
            forecasts[card.name][member] = records
            yield f"{card.name} {member}: {', '.join(texts)}"
        write_atomically(folder(study) / "forecasts.json", json.dumps(forecasts, indent=1) + "\n")


def check(study: str, runs: Sequence[Run]) -> None:
    """Raise ValueError if a run with a budget has no forecast, or one of other inputs."""
    forecasts = read_forecasts(study)
    for run in runs:
        for measurement in run.card.measurements if run.card.tokens else ():
            card, member = run.card.name, run.member
            record = forecasts.get(card, {}).get(member, {}).get(measurement.name, {})
            if not _matches(record, _inputs(run.budgets[-1], measurement)):
                kind = "a forecast of another model" if record else "no forecast"
                raise ValueError(
                    f"card {card}, member {member} has {kind}; "
                    f"first run: python -m studies forecast {study}"
                )


def _matches(record: dict[str, Any], inputs: dict[str, Any]) -> bool:
    return record | inputs == record


def _inputs(config: ExperimentConfig, measurement: Measurement) -> dict[str, Any]:
    """Return the inputs of a forecast; `num_others` is None for a task without forecasts."""
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


def _forecast(
    config: ExperimentConfig, measurement: Measurement, inputs: dict[str, Any]
) -> dict[str, Any]:
    """Return `l50` in tokens, and whether it is `beyond` all distances; None: no forecast."""
    if inputs["num_others"] is None:
        return {"l50": None, "beyond": None}
    result = forecast(
        config.model,
        config.data.context_length,
        num_others=inputs["num_others"],
        longest=inputs["longest"],
        masked_heads=measurement.masked_heads,
    )
    return {"l50": result.l50, "beyond": result.beyond}
