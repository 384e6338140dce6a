"""A member as a job of its own is the member that sweep.py would train."""

import pytest

import sweep
import train
from tpu import member

GIVEN = ["model.rotary.base=10,1e4", "seed=0,1", "train.num_steps=3"]


@pytest.fixture
def trained(monkeypatch):
    """What `train.train` was asked for, one (directory, config, overrides) a member."""
    calls = []

    def record(configs, runs, *, given_overrides, command):
        paths = [run.path for run in runs]
        calls.extend(zip(paths, configs, given_overrides, strict=True))
        return True

    monkeypatch.setattr(train, "train", record)
    monkeypatch.setattr(train, "check", lambda configs, runs: None)
    return calls


def test_the_jobs_together_are_the_sweep(trained, tmp_path):
    assert sweep.run_sweep("tiny", tmp_path, GIVEN, "")
    expected, text = list(trained), (tmp_path / "sweep.json").read_text()
    assert [path.name for path, _, _ in expected] == [
        *("base=10,seed=0", "base=10,seed=1", "base=1e4,seed=0", "base=1e4,seed=1")
    ]
    trained.clear()
    (tmp_path / "sweep.json").unlink()
    for number in (3, 0, 2, 1):  # in any order
        assert member.run_member(number, "tiny", tmp_path, GIVEN, "")
        assert (tmp_path / "sweep.json").read_text() == text
    assert sorted(trained, key=lambda call: call[0]) == expected


def test_no_such_member(trained, tmp_path):
    with pytest.raises(ValueError, match="no member 4: the sweep has members 0 to 3"):
        member.run_member(4, "tiny", tmp_path, GIVEN, "")
    assert not (tmp_path / "sweep.json").exists()


def test_another_sweep_is_not_mixed_in(trained, tmp_path):
    member.run_member(0, "tiny", tmp_path, GIVEN, "")
    with pytest.raises(ValueError, match="holds another sweep; use another --workdir"):
        member.run_member(0, "tiny", tmp_path, ["seed=0,1"], "")
