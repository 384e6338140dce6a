"""The command line, records on disk, and the tables of docs/performance.md."""

import importlib
import sys
import types

import pytest

from benchmarks import machine, suite
from benchmarks.record import Record, Result


@pytest.mark.parametrize("name", suite.BENCHMARKS)
def test_every_benchmark_has_a_module(name):
    assert callable(importlib.import_module(f"benchmarks.{name}").measure)


@pytest.fixture
def runs(monkeypatch):
    """The settings with which a stand-in for `step` ran; with 13 rounds it fails."""
    settings = []

    def measure(setting):
        settings.append(setting)
        yield "a note"
        yield Result(name="a", ratio="b over c", least=1, median=2, at_least=1.5)
        if setting.rounds == 13:
            raise MemoryError("in the middle")
        yield Result(name="d", ratio="e over f", least=1, median=1)

    monkeypatch.setitem(sys.modules, "benchmarks.step", types.SimpleNamespace(measure=measure))
    return settings


def only_file(folder):
    (path,) = folder.rglob("gpu-step.json")
    return path


def test_resume_skips_a_complete_record(runs, tmp_path):
    setting = suite.Setting("gpu", dry=True)
    for resume in (True, True, False):
        suite.run("step", setting, tmp_path, resume=resume)
    assert len(runs) == 2
    record = Record.read(only_file(tmp_path))
    assert [result.name for result in record.results] == ["a", "d"] and record.complete
    assert record.notes == ("a note",) and record.dry_run.startswith("dry run on")
    assert record.command == "gpu --only step --dry"
    text = only_file(tmp_path).read_text()
    assert machine.platform.node() not in text and str(machine.ROOT) not in text


def test_an_interrupted_benchmark_keeps_its_results_and_runs_again(runs, tmp_path):
    with pytest.raises(MemoryError):
        suite.run("step", suite.Setting("gpu", rounds=13), tmp_path, resume=True)
    record = Record.read(only_file(tmp_path))
    assert [result.name for result in record.results] == ["a"] and not record.complete
    suite.run("step", suite.Setting("gpu"), tmp_path, resume=True)
    assert len(runs) == 2 and Record.read(only_file(tmp_path)).complete


@pytest.mark.parametrize("device", suite.ENVIRONMENT)
def test_performance_shows_the_committed_records(device):
    page = (machine.ROOT / "docs" / "performance.md").read_text("utf-8")
    text = suite.document(device, suite.set_of(device), suite.RESULTS)
    repeat = f"python -m benchmarks {device} --into docs/performance.md"
    assert suite.insert(text, page, device) == page, repeat
