"""The checkpoint at which a number is half-way, and the checkpoints of a run."""

import math

import numpy as np
import pytest

from ropewalk.probes.analyses.through_training import ThroughTraining


def make_result(*value_C: float) -> ThroughTraining:
    """Return measurements of one number at steps 0, 10, 20, ..."""
    value_3CX = np.tile(np.array(value_C)[:, None], (3, 1, 1))
    steps_C = 10 * np.arange(len(value_C))
    return ThroughTraining(step_C=steps_C, name_X=np.array(["it"]), value_3CX=value_3CX)


@pytest.mark.parametrize(
    ("values", "step"),
    [
        ((0, 1, 6, 10), 20),
        ((2, 5, 9, 10), 20),
        ((2, 6, 4, 10), 10),
        ((math.nan, 9, 10), 10),  # NaN counts as 0
        ((5, 30, math.inf), 20),  # inf is the last value
        ((5, math.inf, math.inf), 10),
        *zip([(3, 3), (3, 5, 2), (1, math.nan)], [math.nan] * 3, strict=True),  # did not rise
    ],
)
def test_half_way_is_the_first_checkpoint_at_half(values, step):
    assert make_result(*values).halfway_step("it") == pytest.approx(step, nan_ok=True)
