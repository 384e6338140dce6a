"""Dashboards, with stand-ins for their packages: where files go, and what a run is called there."""

import sys
import types

import pytest

from ropewalk.experiment.metrics import open_tracker
from ropewalk.experiment.run import RunDirectory
from tests.models import tiny_config


@pytest.fixture
def sessions(monkeypatch, tmp_path):
    """The options that wandb is started with, on a machine without any of its keys."""
    started = []

    def init(**options):
        logged = []
        started.append(options | {"logged": logged})
        log = lambda row, step: logged.append((step, row))  # noqa: E731
        return types.SimpleNamespace(log=log, finish=lambda: None)

    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=init))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_BASE_URL", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    return started


def make_run(path):
    run = RunDirectory(path)
    run.write_config(tiny_config("model.rotary.base=30", "seed=7"), [])
    return run


def test_files_lie_under_the_run_and_a_run_is_known_by_more_than_its_path(
    sessions, tmp_path, monkeypatch
):
    for clone in ("one", "two", "one"):  # the last is resumed
        folder = tmp_path / clone / "runs/demo"
        run = RunDirectory(folder) if folder.exists() else make_run(folder)
        open_tracker("wandb", run).log({"step": 3, "loss": 1.5})
    first, second, resumed = sessions
    assert first["dir"] == str(tmp_path / "one/runs/demo")
    assert first["id"] == resumed["id"] != second["id"] and len(first["id"]) == 16
    assert first["name"] == "demo" and first["resume"] == "allow"
    assert first["logged"] == [(3, {"step": 3, "loss": 1.5})]


def test_runs_can_be_plotted_by_their_settings_and_grouped_by_sweep(sessions, tmp_path):
    run = make_run(tmp_path / "bases" / "base=30")
    open_tracker("wandb", run)
    (run.path.parent / "sweep.json").touch()
    open_tracker("wandb", run)
    alone, member = sessions
    assert (alone["group"], member["group"]) == (None, "bases")
    settings = {"model.rotary.base": 30.0, "rotary": "rope(base=30)", "seed": 7, "data.seed": 7}
    assert settings.items() <= member["config"].items()
    assert not [name for name in member["config"] if name.endswith("class")]
