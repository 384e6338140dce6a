"""Forecasts of configs: what they read of a config, and the command."""

import json

import numpy as np

from ropewalk.configs import find_config
from ropewalk.configs.changes import change
from ropewalk.evals.estimate.effective_context import estimate
from ropewalk.evals.estimate.trials import Trials
from ropewalk.experiment.overrides import apply
from ropewalk.model.config import MlaConfig
from ropewalk.theory.forecast import Recall, forecast
from tests.evals.estimate.simulated import simulate
from tests.in_process import call

MLA = MlaConfig(kv_lora_rank=8, qk_nope_head_dim=4, qk_rope_head_dim=8, v_head_dim=8)
# One head of 16 features learns eight keys in documents of 32 tokens within 128 updates,
# which are two chunks of the simulation: one program.
SMALL = change(
    find_config("tiny"),
    model=dict(num_layers=1, num_heads=1, shift_keys=True, align_query_key=True),
    data=dict(
        source="retrieval",
        context_length=32,
        batch_size=8,
        retrieval_tasks=("kv(pairs=4,keys=8)",),
    ),
    train=dict(num_steps=128, learning_rate=1e-2),
    evals=dict(tasks=("kv(pairs=4,keys=8)",)),
)


def accuracy(*overrides: str) -> np.ndarray:
    """Return accuracy by fine bin, both seeds together, and the trials' first distances."""
    trials = forecast(apply(SMALL, overrides), range(2)).trials
    counts = trials.summed().summed()
    return np.stack([counts.low, counts.right / counts.questions])


def test_a_forecast_follows_the_positions_of_the_config():
    """Unrotated recall reaches everywhere; a window and masked distances end it where they say."""
    distance, unrotated = accuracy("model.rotary=nope")
    assert unrotated.min() > 0.9
    _, window = accuracy("model.rotary=nope", "model.window=8")
    assert window[distance < 8].min() > 0.9 > 0.5 > window[distance > 8].max()
    _, hole = accuracy("model.rotary=nope", "model.masked_distances=[4,7]")
    is_hidden = (distance >= 4) & (distance <= 7)
    assert hole[~is_hidden].min() > 0.9 > 0.5 > hole[is_hidden].max()
    _, fast = accuracy("model.rotary.base=2")
    assert fast.mean() < unrotated.mean() - 0.2


def test_the_best_of_different_layers_counts():
    changes = ["model.num_layers=2", "model.rotary=[nope,rope(base=2)]"]
    recall = forecast(apply(SMALL, changes), range(2))  # the program of the test above
    assert recall.estimate.mean_accuracy > 0.95
    assert any("layers are treated as one" in note for note in recall.notes)


def test_only_seeds_that_are_right_everywhere_are_beyond(monkeypatch):
    """All right up to 12 tokens, then .6: no fall is significant, and neither is its absence."""
    curves = [np.ones_like, lambda m: np.where(m < 12, 1.0, 0.6)]
    rows = simulate(curves, np.random.default_rng(0), queries=64)
    recall = Recall(Trials.from_rows(rows), estimate(rows, resamples=20), (), np.zeros(1))
    monkeypatch.setattr("ropewalk.theory.forecast.forecast", lambda config, seeds: recall)
    command = "-m", "ropewalk", "theory", "forecast", "tiny", "model.rotary.base=10,30", "--json"
    members = json.loads(call(*command))["members"]
    assert [member["rotary"] for member in members.values()] == ["rope(base=10)", "rope(base=30)"]
    member = members["base=10"]
    seeds = [(seed["verdict"], seed["beyond"], seed["l50"]) for seed in member["seeds"]]
    assert seeds == [("> 256", True, 256), ("UNDETERMINED", False, None)]
