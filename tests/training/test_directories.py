"""Locks of runs: of two trainers one goes on; the other's message is in the table of errors."""

import pytest

from ropewalk.configs import find_config
from ropewalk.experiment import overrides
from ropewalk.experiment.run import RunDirectory
from ropewalk.training.directories import open_directories
from tests.models import make_plan


@pytest.fixture
def plan(tiny_data, tmp_path):
    config = overrides.apply(find_config("tiny"), tiny_data)
    return make_plan([config], [RunDirectory(tmp_path / "run")])


def test_a_config_that_another_process_began_with_meanwhile_is_refused(plan):
    other = overrides.apply(plan.config, ["model.rotary.base=7"])
    plan.runs[0].write_config(other, [])
    with (
        pytest.raises(ValueError, match=r"holds a run with model\.rotary\.base=7"),
        open_directories(plan, ""),
    ):
        pass
