"""The checkpoints in the repository: complete, small, and readable by all versions."""

from pathlib import Path

import numpy as np
import pytest

from ropewalk.experiment import load
from ropewalk.experiment.identity import run_id
from ropewalk.experiment.run import RunDirectory

RUNS = Path(__file__).parents[2] / "notebooks/runs"
MEMBERS = sorted(path.name for path in RUNS.iterdir())
# Logits after the text, by run, from the versions of requirements.lock.
TEXT = "def attend(query, key, value):"
LOGITS = np.load(Path(__file__).with_name("logits.npz"))


def test_the_checkpoints_are_complete_and_small():
    assert MEMBERS == ["base=10,num_heads=1", "base=10,num_heads=4", "base=10000,num_heads=1"]
    size = sum(path.stat().st_size for path in RUNS.rglob("*") if path.is_file())
    assert 500_000 < size <= 1_000_000


@pytest.mark.parametrize("member", MEMBERS)
def test_logits_equal_those_of_the_locked_versions(member):
    logits_V = load(RUNS / member).logits(TEXT)[0, -1]
    np.testing.assert_allclose(logits_V, LOGITS[member], rtol=0, atol=1e-5)


def test_a_new_default_changes_no_identity():
    """The identity is that of the first commit with these runs, which result rows carry."""
    run = RunDirectory(RUNS / "base=10,num_heads=1")
    assert run_id(run, 1000) == "edbf8ebb578f-3485186564fb"
