"""A trained control with a hole: what is out of sight is not answered, and nothing else is lost."""

import pytest

from configs.changes import change
from evals import runner
from experiment.run import RunDirectory
from studies.capability.recipe import SHORT
from training.loop import train
from training.plan import make_plan

LOW, HIGH = 12, 16


@pytest.mark.slow
def test_the_hole_is_where_it_was_made(tmp_path):
    config = change(
        SHORT,
        model=dict(rotary=dict(base=10_000.0), blind=(LOW, HIGH)),
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
    # Its neighbours are seen as well as what is far from it.
    near = ~hole & (distance >= LOW - 3) & (distance <= HIGH + 3)
    assert right[near].mean() > 0.85 and right[~hole].mean() > 0.9
