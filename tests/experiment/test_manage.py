"""`python -m experiment`: runs are listed, and old checkpoints deleted."""

import re
import shutil

import pytest

from ropewalk import load
from ropewalk.experiment import __main__ as manage
from ropewalk.experiment.records import SweepRecord
from ropewalk.experiment.run import RunDirectory
from ropewalk.utils.locks import try_lock
from tests.in_process import call


def test_runs_below_a_folder_are_listed_and_pruned(trained_run, tmp_path, monkeypatch):
    run = shutil.copytree(trained_run, tmp_path / "runs" / "sweep" / "run")
    (tmp_path / "runs" / "notes").mkdir()
    (tmp_path / "runs" / "link").symlink_to(tmp_path / "runs" / "sweep")
    (tmp_path / "runs" / "exported").mkdir()
    shutil.copyfile(run / "config.json", tmp_path / "runs" / "exported" / "config.json")
    monkeypatch.chdir(tmp_path)
    for words in ((), ("runs",), ("list", tmp_path / "runs")):
        listing = call("-m", "experiment", *words)
        assert listing.count("tiny") == 1 and "rope(base=" in listing
    logits = load(run).logits("import")
    with try_lock(run / ".lock"):
        output = call("-m", "experiment", "prune", tmp_path / "runs", status=2)
        assert "is being trained" in output and (run / "checkpoints" / "1").exists()
    prune = "-m", "experiment", "prune", tmp_path / "runs", "--keep", "1"
    assert f"would delete {run}/checkpoints/1\n" in call(*prune, "--dry-run")
    assert RunDirectory(run).steps() == [1, 2]
    assert "deleted" in (output := call(*prune)) and "of 1 run\n" in output
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["2"]
    assert (load(run).logits("import") == logits).all()
    stopped = shutil.copytree(trained_run, tmp_path / "stopped")
    shutil.rmtree(stopped / "checkpoints" / "2")
    (stopped / "metrics.jsonl").write_text('{"step": 1, "tokens": 9, "loss": null}\n')
    assert "damaged" in call("-m", "experiment", "list", stopped)
    changes, paths = RunDirectory(run).record["overrides"], (run, stopped, tmp_path / "new")
    command = "train.py", "tiny", *changes, "evals.documents=3", "--check", "--workdir"
    checks = [call(*command, path) for path in paths]
    assert ["keeps its `evals`; give evaluate.py" in x for x in checks] == [True, True, False]
    none, one, two = (re.findall(r"time: (\S+)", check)[0] for check in checks)
    assert none == "none," and float(two) == pytest.approx(2 * float(one), rel=0.1)
    call("-m", "experiment", "prune", run, stopped, "--optimizer")
    assert (load(run).logits("import") == logits).all()
    assert not (run / "checkpoints" / "2" / "opt_state").exists()
    output = call("train.py", "tiny", "--workdir", run, *changes)
    assert "finished already, 2 steps" in output and f"python evaluate.py {run}" in output
    message = call("train.py", "tiny", "--workdir", stopped, *changes, status=2)
    assert "without an optimizer state" in message and f"start_from={stopped}" in message
    assert "no run" in call("-m", "experiment", "list", tmp_path / "runs" / "notes", status=2)
    # Training removes a file that is being counted.
    monkeypatch.setattr(manage, "_size", lambda path: (path / "gone").stat())
    assert "No such file" in manage.describe(RunDirectory(run))["config"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # A kill between two saves: the sweep goes on from 4, which all have.
        ({"a": [2, 4, 6], "b": [2, 4]}, {"a": [4, 6], "b": [4]}),
        ({"a": [4, 6, 8], "b": [4, 6], "c": [4, 8]}, {"a": [4, 6, 8], "b": [4, 6], "c": [4, 8]}),
        # Seeds train one after another, and share no step.
        ({"a": [8, 9], "b": [8, 9], "c": [2, 4]}, {"a": [9], "b": [9], "c": [4]}),
    ],
)
def test_prune_keeps_the_step_from_which_a_sweep_goes_on(tmp_path, before, after):
    record = SweepRecord(config="tiny", overrides=(), members=tuple(before))
    (tmp_path / "sweep.json").write_text(record.to_json())
    runs = [RunDirectory(tmp_path / name) for name in before]
    for run in runs:
        for step in before[run.name]:
            (run.checkpoints_path / str(step)).mkdir(parents=True)
    for run in runs:
        manage.prune(run, keep=1)
    assert {run.name: run.steps() for run in runs} == after
