"""Train a control with masked distances: it misses answers there and finds all others."""

import pytest

from configs.changes import change
from evals import runner
from experiment.run import RunDirectory
from studies.capability.recipe import SHORT
from training.loop import train
from training.plan import make_plan

LOW, HIGH = 12, 16


@pytest.mark.long
def test_recall_fails_at_masked_distances_only(tmp_path):
    config = change(
        SHORT,
        model=dict(rotary=dict(base=10_000.0), masked_distances=(LOW, HIGH)),
        data=dict(context_length=64, batch_size=16),
        train=dict(num_steps=300),
        evals=dict(documents=64),
    )
    run = RunDirectory(tmp_path)
    assert train(make_plan([config], [run]))
    ((_, _, rows),) = runner.evaluate([run.path])
    distance, right = rows["distance"], rows["exact_match"]
    hole = (distance >= LOW) & (distance <= HIGH)
    assert hole.sum() > 50 and {LOW - 1, HIGH + 1} <= set(distance.tolist())
    assert right[hole].mean() < 0.15
    # Distances next to the masked ones are answered as well as those far from them.
    near = ~hole & (distance >= LOW - 3) & (distance <= HIGH + 3)
    assert right[near].mean() > 0.85 and right[~hole].mean() > 0.9
