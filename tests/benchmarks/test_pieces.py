"""The command lines of `cpu` and `gpu`; pieces that hardly compute run dry."""

import importlib
import json
import subprocess
import sys
import types

import pytest

from benchmarks import cpu, gpu, machine, pieces
from benchmarks.record import Result, Taken

COMMANDS = [cpu.COMMAND, gpu.COMMAND]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_piece_has_a_module(command):
    for name in command.pieces:
        module = importlib.import_module(f"benchmarks.{command.name}.{name}")
        assert callable(module.measure)
    assert command.seconds.keys() <= command.pieces.keys()
    assert command.environment.keys() <= command.pieces.keys()


def test_gpu_takes_24_minutes_at_most_and_a_piece_nine():
    assert sum(gpu.COMMAND.seconds.values()) <= 24 * 60
    assert gpu.COMMAND.seconds.keys() == gpu.COMMAND.pieces.keys()
    assert max(gpu.COMMAND.seconds.values()) < 9 * 60


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["gpu", "--only", "stpe"], "unknown piece 'stpe'; did you mean 'step'? (valid: "),
        (["cpu", "--only", "step,nothing"], "unknown piece 'nothing'; "),
        (["cpu", "--only", ""], "unknown piece ''; "),
        (["gpu", "--scale", "2"], "argument --scale: '2' is not a number above 0, up to 1"),
        (["gpu", "--scale", "nan"], "argument --scale: 'nan' is not"),
        (["cpu", "--rounds", "0"], "argument --rounds: '0' is not a number from 1 to 1000"),
        (["cpu", "--scale", "0.01"], "unrecognized arguments: --scale 0.01"),
    ],
)
def test_what_is_refused(words, says, capsys, tmp_path):
    command = importlib.import_module(f"benchmarks.{words[0]}").COMMAND
    with pytest.raises(SystemExit) as stopped:
        pieces.main(command, [*words[1:], "--out", str(tmp_path / "new")])
    assert stopped.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.partition(": error: ")[2].startswith(says)
    assert not (tmp_path / "new").exists()


def test_list_names_every_piece(capsys):
    assert pieces.main(gpu.COMMAND, ["--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [
        *gpu.COMMAND.pieces
    ]


@pytest.fixture
def measured(monkeypatch):
    """A piece that counts how often it was measured, in place of `step`."""
    calls = []

    def measure(setting):
        calls.append(setting)
        yield "a note"
        yield Result(name="a", ratio="b over c", least=1, median=2, at_least=1.5)
        if calls[0].rounds == 13:
            raise MemoryError("in the middle")
        yield Result(name="d", ratio="e over f", least=1, median=1)

    monkeypatch.setitem(sys.modules, "benchmarks.gpu.step", types.SimpleNamespace(measure=measure))
    return calls


def file_of(folder):
    (path,) = folder.rglob("gpu-step.json")
    return path


def test_a_piece_is_measured_once_and_again_when_told(measured, tmp_path, capsys):
    words = ["--here", "--only", "step", "--out", str(tmp_path), "--scale", "0.01"]
    assert [pieces.main(gpu.COMMAND, words) for _ in range(2)] == [0, 0]
    assert len(measured) == 1 and "measured before" in capsys.readouterr().out
    assert pieces.main(gpu.COMMAND, [*words, "--again"]) == 0
    assert len(measured) == 2 and measured[0].dry
    found = Taken.read(file_of(tmp_path))
    assert [one.name for one in found.results] == ["a", "d"] and found.notes == ("a note",)
    assert found.complete and found.dry_run.startswith("dry run on")
    assert found.command == "gpu --only step --scale 0.01"


def test_what_ends_a_piece_loses_no_figure_and_the_piece_is_measured_again(measured, tmp_path):
    words = ["--here", "--only", "step", "--out", str(tmp_path)]
    with pytest.raises(MemoryError):
        pieces.main(gpu.COMMAND, [*words, "--rounds", "13"])
    found = Taken.read(file_of(tmp_path))
    assert [one.name for one in found.results] == ["a"] and not found.complete
    measured.clear()
    assert pieces.main(gpu.COMMAND, words) == 0
    assert len(measured) == 1 and Taken.read(file_of(tmp_path)).complete


def test_files_name_no_host_and_no_path(measured, tmp_path):
    pieces.main(gpu.COMMAND, ["--here", "--only", "step", "--out", str(tmp_path)])
    text = file_of(tmp_path).read_text()
    assert machine.platform.node() not in text and str(machine.ROOT) not in text
    assert json.loads(text)["versions"]["jax"]


def test_markdown_prints_what_was_measured_before(measured, tmp_path, capsys):
    words = ["--here", "--only", "step", "--out", str(tmp_path)]
    pieces.main(gpu.COMMAND, words)
    capsys.readouterr()
    assert pieces.main(gpu.COMMAND, [*words, "--markdown"]) == 0
    assert "| a | 1 / 2 | b over c | at least 1.5: met |  |" in capsys.readouterr().out
    assert len(measured) == 1


def test_a_document_has_its_part_replaced(measured, tmp_path, capsys):
    out, document = str(tmp_path / "out"), tmp_path / "text.md"
    document.write_text(
        "a\n<!-- python -m benchmarks gpu -->\nold\n<!-- end of gpu -->\nb\n", "utf-8"
    )
    words = ["--here", "--only", "step", "--out", out]
    pieces.main(gpu.COMMAND, words)
    assert pieces.main(gpu.COMMAND, [*words, "--into", str(document)]) == 0
    text = document.read_text("utf-8")
    assert text.startswith("a\n<!-- python") and text.endswith("<!-- end of gpu -->\nb\n")
    assert "old" not in text and "| d | 1 / 1 | e over f |" in text
    document.write_text("without marks", "utf-8")
    with pytest.raises(SystemExit):
        pieces.main(gpu.COMMAND, [*words, "--into", str(document)])
    assert document.read_text("utf-8") == "without marks"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_performance_says_what_the_files_say(command):
    document = (machine.ROOT / "docs" / "performance.md").read_text("utf-8")
    made = pieces.said(command, list(command.pieces), pieces.RESULTS)
    again = f"python -m benchmarks {command.name} --into docs/performance.md"
    assert pieces.put(made, document, command.name) == document, again


NEEDED = "jax jaxlib flax optax orbax etils numpy sentencepiece"
BLOCKED = "grain tensorflow_datasets array_record zstandard matplotlib jinja2 torch transformers"


@pytest.mark.slow
def test_a_gpu_needs_few_packages(tmp_path):
    """What `jax`, `flax`, `optax` and `orbax` install with them is there too (scipy, rich)."""
    own = [f"benchmarks.gpu.{name}" for name in gpu.COMMAND.pieces]
    code = f"""
import sys
for name in {BLOCKED.split()}:
    sys.modules[name] = None
import {NEEDED.replace(" ", ", ")}, rich, benchmarks.pieces, {", ".join(own)}
from benchmarks import shapes, timing
shapes.on_gpu(), shapes.sweeps_on_gpu()
timing.Sweep([shapes.sweeps_on_gpu(0.01)["demo"]] * 2).updates()()
from benchmarks.gpu import COMMAND
from benchmarks.pieces import main
words = "--here --only peer --scale 0.01 --out".split()
assert main(COMMAND, [*words, {str(tmp_path)!r}]) == 0
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=machine.ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    (path,) = tmp_path.rglob("gpu-peer.json")
    assert Taken.read(path).notes == ("torch is not installed: no comparison with it",)
