"""Stored forecasts of recall stay as they are, and errors are those of log2 L50."""

import dataclasses
import json
import math

import numpy as np
import pytest

from configs import find_config
from configs.changes import change
from evals.estimate.bins import fine_bin_number
from evals.estimate.effective_context import estimate_trials
from evals.estimate.trials import Trials
from studies import budgets, forecasts, recall, rows
from studies.card import Card, Member

pytestmark = pytest.mark.slow

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


def comparison(forecast: float, edge: int, *, num_heads: int = 1) -> recall.Comparison:
    """Return a comparison with a model that is right up to `edge` of 253 tokens."""
    fine = np.arange(0, 64)
    counts = dict(seed=fine * 0, document=fine * 0, bin=fine, questions=fine * 0 + 100.0)
    low = np.ceil(2 ** (fine / 8) - 1e-6)
    trials = Trials.from_counts(
        counts | {"right": 100.0 * (low <= edge)}, distances=(1, 253), chance=1 / 64
    )
    measured = estimate_trials(trials, task="kv", lengths=(256, 256), resamples=20)
    accuracy = measured.mean_accuracy + 0.1
    record = {"inputs": {"num_heads": num_heads, "num_layers": 1}, "mean_accuracy": accuracy}
    lengths = {recall.MINIMAL_HEAD: forecast, "half": edge / 2}
    card = Card(name="one", question="?", shared=SHARED, members=(Member(name="kv"),))
    return recall.Comparison(card, "kv", 1, 1, measured, record, lengths, 0.1)


def test_errors_are_octaves_without_members_censored_on_both_sides():
    items = [comparison(2.0 * edge, edge) for edge in (16, 40)] + [comparison(1e9, 253)]
    head = recall.errors(items, recall.MINIMAL_HEAD)
    assert head.num_members == 2  # the third is right everywhere, as forecast
    assert head.rms == pytest.approx(1, abs=0.15)
    assert head.rms_fitted < 0.1
    assert head.constant == pytest.approx(0.5, rel=0.1)
    rival = recall.errors(items, "half")
    assert rival.num_members == 3  # it forecasts an edge where the third has none
    assert rival.rms == pytest.approx(1, abs=0.15)
    assert rival.constant == pytest.approx(2, rel=0.1)


def test_a_length_implies_mean_accuracy():
    """Perfect recall up to 64 of 253 distances, and one of 64 guesses beyond."""
    item = comparison(1.0, 64)
    expected = 64 / 253 + 189 / 253 / 64
    assert item.measured.mean_accuracy == pytest.approx(64 / 253, abs=0.02)
    assert item.accuracy_error(64) == pytest.approx(expected - item.measured.mean_accuracy)
    assert item.accuracy_error(1e9) == pytest.approx(1 - item.measured.mean_accuracy)
    assert recall.errors([item], recall.MINIMAL_HEAD, of_accuracy=True).rms == pytest.approx(0.1)
    assert recall.errors([item], "half", of_accuracy=True).constant == pytest.approx(2, rel=0.1)


def test_marks():
    assert comparison(34.0, 32).mark == "held"
    assert comparison(16.0, 32).mark == "exceeds"
    assert comparison(64.0, 32).mark == "failed"
    assert comparison(64.0, 32, num_heads=2).mark == "held"  # L50 jumps over holes
    assert comparison(64.0, 253).mark == "exceeds"
    assert comparison(300.0, 253).mark == "held"
    assert comparison(34.0, 32)._replace(rmse=0.2).mark == "failed"


def test_equal_runs_of_two_cards_are_compared_once(tmp_path, monkeypatch):
    """All cards have all seeds of a run, and all but the first card name the run they repeat."""
    monkeypatch.setattr(recall, "folder", lambda study: tmp_path)
    monkeypatch.setattr(forecasts, "folder", lambda study: tmp_path)
    cards = [
        Card(name=name, question="?", shared=SHARED, members=(Member(name=f"{name}-kv"),))
        for name in ("one", "two")
    ]
    list(recall.write("study", cards, 1))
    list(forecasts.write("study", cards))
    fine, distance = np.unique(fine_bin_number(np.arange(1, 30)), return_counts=True)
    questions = np.tile(distance, (8, 1))
    answers = rows.Answers(
        measurement="whole",
        task=KV[0],
        length=32,
        value=0.0,
        counts=rows.Counts(0.0, 1, 29, fine, questions, questions),
    )
    all_rows = [
        rows.Row(
            card=card.name, member=card.members[0].name, seed=seed,
            tokens=budgets.count_tokens(card.configs()[card.members[0].name]), final="as planned",
            config=change(card.configs()[card.members[0].name], seed=seed, data=dict(seed=seed)),
            answers=(answers,), l50=math.inf, mean_accuracy=1.0, ceiling=1.0, losses={},
            made_by={}, core_seconds=1.0,
        )
        for seed, card in enumerate(cards)
    ]  # fmt: skip
    stored = recall.read("study"), forecasts.read_forecasts("study")
    first, second = recall.compare(cards, all_rows, *stored)
    assert (first.repeats, second.repeats) == ("", "one one-kv")
    assert first.measured is second.measured and first.measured.num_seeds == 2
    head, *rivals = recall.summaries([first, second])
    assert head["members"].startswith("1 rows before forecast")
    assert [cells["theory"] for cells in rivals] == ["D_H", "quarter period", "B_m < 0"]
