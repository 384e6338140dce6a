"""The command line, records on disk, and the tables of docs/performance.md."""

import importlib
import json
import subprocess
import sys
import types

import pytest

from benchmarks import __main__ as command
from benchmarks import machine, suite
from benchmarks.record import Record, Result

GPU = suite.set_of("gpu")


@pytest.mark.parametrize("name", suite.BENCHMARKS)
def test_every_benchmark_has_a_module(name):
    assert callable(importlib.import_module(f"benchmarks.{name}").measure)


def test_gpu_takes_24_minutes_at_most_and_one_benchmark_nine():
    seconds = [suite.BENCHMARKS[name].seconds["gpu"] for name in GPU]
    assert sum(seconds) <= 24 * 60 and max(seconds) < 9 * 60


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gpu", "--only", "stpe"], "unknown benchmark 'stpe' of gpu; did you mean 'step'? (valid"),
        (["cpu", "--only", "step,decode"], "unknown benchmark 'decode' of cpu; "),
        (["gpu", "--scale", "nan"], "argument --scale: 'nan' is not a number above 0, up to 1"),
        (["cpu", "--rounds", "0"], "argument --rounds: '0' is not a number from 1 to 1000"),
    ],
)
def test_a_mistake_is_one_line_and_creates_nothing(
    arguments, message, capsys, monkeypatch, tmp_path
):
    out = tmp_path / "new"
    monkeypatch.setattr(sys, "argv", ["benchmarks", *arguments, "--out", str(out)])
    with pytest.raises(SystemExit) as stopped:
        command.main()
    (line,) = capsys.readouterr().err.splitlines()
    assert stopped.value.code == 2 and line.partition(": error: ")[2].startswith(message)
    assert not out.exists()


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
    setting = suite.Setting("gpu", scale=0.01)
    for resume in (True, True, False):
        suite.run("step", setting, tmp_path, resume=resume)
    assert len(runs) == 2
    record = Record.read(only_file(tmp_path))
    assert [result.name for result in record.results] == ["a", "d"] and record.complete
    assert record.notes == ("a note",) and record.dry_run.startswith("dry run on")
    assert record.command == "gpu --only step --scale 0.01"
    text = only_file(tmp_path).read_text()
    assert machine.platform.node() not in text and str(machine.ROOT) not in text


def test_an_interrupted_benchmark_keeps_its_results_and_runs_again(runs, tmp_path):
    with pytest.raises(MemoryError):
        suite.run("step", suite.Setting("gpu", rounds=13), tmp_path, resume=True)
    record = Record.read(only_file(tmp_path))
    assert [result.name for result in record.results] == ["a"] and not record.complete
    suite.run("step", suite.Setting("gpu"), tmp_path, resume=True)
    assert len(runs) == 2 and Record.read(only_file(tmp_path)).complete


def test_into_replaces_one_part_of_a_document(runs, tmp_path, monkeypatch):
    out, page = tmp_path / "out", tmp_path / "text.md"
    suite.run("step", suite.Setting("gpu"), out)
    marked = "a\n<!-- python -m benchmarks gpu -->\nold\n<!-- end of gpu -->\nb\n"
    arguments = ["benchmarks", "gpu", "--into", str(page), "--out", str(out)]
    monkeypatch.setattr(sys, "argv", arguments)
    page.write_text(marked, "utf-8")
    assert command.main() == 0
    text = page.read_text("utf-8")
    assert text.startswith("a\n<!-- python") and text.endswith("<!-- end of gpu -->\nb\n")
    assert "old" not in text and "| a | 1 / 2 | b over c | at least 1.5: met |  |" in text
    page.write_text("without marks", "utf-8")
    with pytest.raises(SystemExit):
        command.main()
    assert page.read_text("utf-8") == "without marks"


@pytest.mark.parametrize("device", suite.ENVIRONMENT)
def test_performance_shows_the_committed_records(device):
    page = (machine.ROOT / "docs" / "performance.md").read_text("utf-8")
    text = suite.document(device, suite.set_of(device), suite.RESULTS)
    repeat = f"python -m benchmarks {device} --into docs/performance.md"
    assert suite.insert(text, page, device) == page, repeat


BLOCKED = "grain tensorflow_datasets array_record zstandard matplotlib jinja2 torch transformers"


@pytest.mark.long
@pytest.mark.slow
def test_a_gpu_needs_few_packages(tmp_path):
    """Only jax, flax, optax, orbax, etils, numpy, sentencepiece and what they install."""
    code = f"""
import sys
for name in {BLOCKED.split()}:
    sys.modules[name] = None
import {", ".join(f"benchmarks.{name}" for name in GPU)}
from benchmarks import shapes, timing
shapes.train_shapes("gpu")
timing.TrainStep(*[shapes.sweep_shapes("gpu", 0.01)["demo"]] * 2).make_update()()
sys.argv = "benchmarks peer --device gpu --scale 0.01 --out".split() + [{str(tmp_path)!r}]
from benchmarks.__main__ import main
assert main() == 0
"""
    process = subprocess.run(
        [sys.executable, "-c", code], cwd=machine.ROOT, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    (path,) = tmp_path.rglob("gpu-peer.json")
    (note,) = json.loads(path.read_text())["notes"]
    assert note.startswith("peer needs torch: run `make test-hf` once")
