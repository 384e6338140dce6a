"""Stored forecasts of recall stay as they are, and errors are those of log2 L50."""

import dataclasses
import json

import numpy as np
import pytest

from configs import find_config
from configs.changes import change
from evals.estimate.effective_context import estimate_trials
from evals.estimate.trials import Trials
from studies import forecasts, recall
from studies.card import Card, Member

KV = ("kv(pairs=4,keys=8)",)
SHARED = change(
    find_config("tiny"),
    model=dict(num_layers=1, num_heads=1),
    data=dict(source="retrieval", retrieval_tasks=KV),
    train=dict(num_steps=16, warmup_steps=1),
    evals=dict(tasks=KV),
)


def test_a_stored_forecast_stays_until_its_inputs_change(tmp_path, monkeypatch):
    for module in (recall, forecasts):
        monkeypatch.setattr(module, "folder", lambda study: tmp_path)
    kv = Member(name="kv", overrides=("model.rotary.base=10",))
    other = Member(name="lagcopy", overrides=("data.retrieval_tasks=[lagcopy]",))
    card = Card(name="one", question="?", shared=SHARED, members=(kv, other))
    assert len(list(recall.write("study", [card], 1))) == 1  # lagcopy has no such forecast
    path = tmp_path / "recall.json"
    stored = json.loads(path.read_text())
    (record,) = stored["one"]["kv"].values()
    assert [low for low, _ in record["bins"]][:3] == [1, 2, 3]
    record["l50"] = 5.0
    path.write_text(json.dumps(stored))
    assert not list(recall.write("study", [card], 1))
    assert recall.read("study") == stored
    slower = dataclasses.replace(SHARED.train, learning_rate=1e-3)
    card = dataclasses.replace(card, shared=dataclasses.replace(SHARED, train=slower))
    assert len(list(recall.write("study", [card], 1))) == 1
    (record,) = recall.read("study")["one"]["kv"].values()
    assert record["l50"] != 5.0


def comparison(forecast: float, edge: int, longest: int = 253) -> recall.Comparison:
    """Return a comparison with a model that is right up to `edge`."""
    fine = np.arange(0, 64)
    counts = dict(seed=fine * 0, document=fine * 0, bin=fine, questions=fine * 0 + 100.0)
    low = np.ceil(2 ** (fine / 8) - 1e-6)
    trials = Trials.from_counts(
        counts | {"right": 100.0 * (low <= edge)}, distances=(1, longest), chance=1 / 64
    )
    measured = estimate_trials(trials, task="kv", lengths=(256, 256), resamples=20)
    record = {"l50": forecast, "inputs": {"num_heads": 1}}
    return recall.Comparison("card", "member", 1, 0, measured, record, {"twice": 2 * edge}, 0.0)


def test_errors_are_octaves_over_uncensored_members():
    items = [comparison(2.0 * edge, edge) for edge in (16, 40)] + [comparison(10.0, 253)]
    head, rival = recall.errors(items)
    assert (head.name, rival.name) == ("minimal head", "twice")
    assert head.num_members == 2  # the third is right everywhere
    assert head.bias == pytest.approx(1, abs=0.15)
    assert head.rms_fitted < 0.1 < head.rms
    assert rival.rms == pytest.approx(head.rms)
    assert items[2].octaves(1e9) == pytest.approx(0)
