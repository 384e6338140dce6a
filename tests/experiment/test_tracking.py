"""Dashboards, with a stand-in for wandb: where files go, and what a run is called there."""

import sys
import types

from ropewalk.experiment.metrics import open_tracker
from ropewalk.experiment.run import RunDirectory
from tests.models import tiny_config


def test_a_run_is_known_by_more_than_its_path_and_can_be_plotted_by_settings(tmp_path, monkeypatch):
    started, logged = [], []
    session = types.SimpleNamespace(log=lambda row, step: logged.append((step, row)), finish=None)
    wandb = types.SimpleNamespace(init=lambda **options: started.append(options) or session)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    for clone in ("one", "two", "one"):  # the last is resumed, in a sweep by now
        run = RunDirectory(tmp_path / clone / "runs/demo")
        if run.is_started():
            (run.path.parent / "sweep.json").touch()
        else:
            changes = "model.rotary.base=30", "seed=7", "stages=[[model.rotary=nope]]"
            run.write_config(tiny_config(*changes), [])
        open_tracker("wandb", run).log({"step": 3, "loss": 1.5})
    first, second, resumed = started
    assert first["dir"] == str(tmp_path / "one/runs/demo") and first["mode"] == "offline"
    assert first["id"] == resumed["id"] != second["id"] and len(first["id"]) == 16
    assert (first["name"], first["group"], resumed["group"]) == ("demo", None, "runs")
    assert logged == [(3, {"step": 3, "loss": 1.5})] * 3
    settings = {"model.rotary.base": 30.0, "rotary": "rope(base=30)", "seed": 7, "data.seed": 7}
    settings["stage 1: model.rotary"] = "nope"
    assert settings.items() <= first["config"].items()
    assert not [name for name in first["config"] if name.endswith("class")]
