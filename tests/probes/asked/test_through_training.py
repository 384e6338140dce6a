"""When a number was half-way from where it began to where it ended."""

import math
import types

import numpy as np
import pytest

from configs import find_config
from configs.changes import change
from experiment.loaded import LoadedRun
from probes.asked.through_training import ThroughTraining, checkpoints


def found(*value_C: float) -> ThroughTraining:
    """One number at steps 0, 10, 20, ..."""
    value_3CX = np.tile(np.array(value_C)[:, None], (3, 1, 1))
    steps_C = 10 * np.arange(len(value_C))
    return ThroughTraining(step_C=steps_C, name_X=np.array(["it"]), value_3CX=value_3CX)


@pytest.mark.parametrize(
    ("values", "step"),
    [
        ((0, 1, 6, 10), 20),
        ((2, 5, 9, 10), 20),
        ((2, 6, 4, 10), 10),
        ((math.nan, 9, 10), 10),  # what is not learned is nothing
        ((5, 30, math.inf), 20),  # seen to the end
        ((5, math.inf, math.inf), 10),
    ],
)
def test_half_way_is_a_checkpoint(values, step):
    assert found(*values).half_way("it") == step


@pytest.mark.parametrize("values", [(3, 3), (3, 5, 2), (1, math.nan)])
def test_what_has_not_risen_was_never_half_way(values):
    assert math.isnan(found(*values).half_way("it"))


def test_what_started_from_another_run_began_with_no_random_weights():
    config = change(find_config("tiny"), start_from="elsewhere")
    directory = types.SimpleNamespace(config=config, steps=lambda: [3])
    run = LoadedRun(directory, 3, config, {})  # pyright: ignore
    assert checkpoints(run) == [run]
