"""Forecasts of a study: computed from frequencies, heads and keys, before anything of it is run.

One rule for all cards, nothing fitted: L50 is the longest length up to which the heads of some
layer, at their best, would get half of the answers right at every distance
(`theory.capability.forecast`), among as many keys as a document of the task holds. A window and a
blind stretch end it where they begin. It lies in `studies/STUDY/forecasts.json`.
"""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

import evals
from data.files import write_atomically
from experiment.config import ExperimentConfig
from model import rotary as rotary_lib
from studies import folder
from studies.card import Card, Measurement
from studies.queue import Job, Queue
from theory import capability

# By card, member and measurement.
Forecasts = dict[str, dict[str, dict[str, dict[str, Any]]]]


def read(study: str) -> Forecasts:
    """Those that were made; none where none were.

    Raises:
      ValueError: if the file is damaged.
    """
    path = folder(study) / "forecasts.json"
    try:
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not JSON ({error.msg}); restore it") from error


def write(study: str, cards: dict[str, Card]) -> Iterator[str]:
    """Makes the forecasts of cards, each kept as soon as it is made; yields a line for each member.

    Those of a card that has them already stay if they are of the same inputs.
    """
    found = read(study)
    for card in cards.values():
        before, found[card.name] = found.get(card.name, {}), {}
        for name, config in card.configs().items():
            made = {}
            for measurement in card.measurements:
                inputs = _inputs(config, measurement)
                old = before.get(name, {}).get(measurement.name)
                same = old is not None and {**old, **inputs} == old
                made[measurement.name] = old if same else inputs | _forecast(config, measurement)
            found[card.name][name] = made
            yield f"{card.name} {name}: " + ", ".join(map(_text, made.items()))
        write_atomically(folder(study) / "forecasts.json", json.dumps(found, indent=1) + "\n")


def check(job: Job, queue: Queue) -> None:
    """Raises ValueError if a run would come before its forecast, or after one of something else."""
    found = read(job.study)
    for run in queue.runs:
        for measurement in run.card.measurements if run.card.tokens else ():
            made = found.get(run.card.name, {}).get(run.member, {}).get(measurement.name)
            inputs = _inputs(run.levels[-1], measurement)
            if made is None or {**made, **inputs} != made:
                kind = "no forecast" if made is None else "a forecast of another model"
                raise ValueError(
                    f"card {run.card.name}, member {run.member} has {kind}; "
                    f"first: python -m studies forecast {job.study}"
                )


def _inputs(config: ExperimentConfig, measurement: Measurement) -> dict[str, Any]:
    """What a forecast is made of; `num_others` is null for a task that it says nothing of."""
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


def _forecast(config: ExperimentConfig, measurement: Measurement) -> dict[str, Any]:
    """`l50` in tokens, and whether that is `beyond` all distances asked; null: nothing forecast."""
    inputs = _inputs(config, measurement)
    if inputs["num_others"] is None:
        return {"l50": None, "beyond": None}
    model, longest = config.model, inputs["longest"]
    table = model.rotary_table(config.data.context_length)
    windows = rotary_lib.repeated(model.window, model.num_layers, "num_layers")
    l50 = 0
    inv_freq_LNR = capability.of_heads(table.inv_freq, model.num_heads)
    for layer, (inv_freq_NR, window) in enumerate(zip(inv_freq_LNR, windows, strict=True)):
        masked = [head for of, head in measurement.masked_heads if of == layer]
        heads_NR = np.delete(inv_freq_NR, masked, axis=0)
        if len(heads_NR):
            end = min(window or longest, longest)
            made = capability.forecast(heads_NR, num_others=inputs["num_others"], longest=end)
            l50 = max(l50, made.l50)
    if model.blind:
        l50 = min(l50, model.blind[0] - 1)
    return {"l50": l50, "beyond": l50 == longest}


def _text(made: tuple[str, dict[str, Any]]) -> str:
    name, found = made
    if found["l50"] is None:
        return f"{name} nothing"
    return f"{name} {'> ' * found['beyond']}{found['l50']}"
