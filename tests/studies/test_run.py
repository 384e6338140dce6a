"""A study that is stopped and continued ends with the same rows."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from ropewalk.studies import load_cards, rows
from tests.in_process import call

ROOT = Path(__file__).parent.parent.parent

CARD = """
name = "echo"
question = "?"
config = "tiny"
overrides = [
    "model.num_layers=1", "data.source=retrieval", "data.retrieval_tasks=[kv]",
    "data.prepared_root={data}", "train.num_steps={steps}", "train.save_every=10",
    "evals.tasks=[kv]",
]

[members]
ten = ["model.rotary.base=10"]

[[measurements]]
name = "whole"

[[measurements]]
name = "headless"
masked_heads = [[0, 1]]

[[claims]]
text = "The loss is high."
measure = ["number_of_rows", 5.0, {{ half = 1.0 }}]
at_least = 4.5
"""
MEASURES = """
from ropewalk.studies.card import Value

def number_of_rows(value, half):
    ends = value - half, value + half
    return lambda card, rows: Value(value, *ends, len(rows)) if rows else None
"""


def write_study(folder: Path, data: Path, steps: int) -> None:
    """Write a study of one card that trains for `steps` on prepared data in `data`."""
    folder.mkdir(exist_ok=True)
    (folder / "__init__.py").write_text('"""Does it echo?"""\n')
    (folder / "measures.py").write_text(MEASURES)
    (folder / "echo.toml").write_text(CARD.format(data=data, steps=steps))


@pytest.fixture
def study(tmp_path, shared_folder):
    """A folder with one card that trains once."""
    write_study(tmp_path / "study", shared_folder / "data", steps=400)
    return tmp_path / "study"


@pytest.mark.long
def test_stopped_and_continued_it_ends_with_the_same_row(study, environment, tmp_path):
    command = (sys.executable, "-m", "studies", "run", study, "--seeds", "0", "--workdir")
    stopped = subprocess.Popen(
        list(map(str, (*command, study / "work"))),
        cwd=ROOT,
        env={**environment, "JAX_PLATFORMS": "cpu"},
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 120
    while not list((study / "work/echo/ten,seed=0/checkpoints").glob("10*")):
        assert time.monotonic() < deadline and stopped.poll() is None
        time.sleep(0.02)
    stopped.send_signal(signal.SIGINT)
    _, stderr = stopped.communicate(timeout=60)
    assert stopped.returncode == 130 and "the same command continues" in stderr, stderr
    assert not (study / "rows").exists()

    call(*command[1:], study / "work")
    call(*command[1:], tmp_path / "at once", "--rows", tmp_path / "rows")
    (ours,), (theirs,) = (rows.read_all(f) for f in (study / "rows", tmp_path / "rows"))
    assert [answers.measurement for answers in ours.answers] == ["whole", "headless"]
    assert ours.numbers == theirs.numbers and ours.final == "as planned"
    for left, right in zip(ours.answers, theirs.answers, strict=True):
        assert left.value == right.value
        assert left.counts and right.counts
        np.testing.assert_array_equal(left.counts.right, right.counts.right)


def test_a_finished_sweep_is_measured_and_a_study_by_path_is_reported(study, tmp_path):
    """A run that sweep.py trained needs no other training."""
    text = (study / "echo.toml").read_text().replace("num_steps=400", "num_steps=3")
    (study / "echo.toml").write_text(text)
    line = call("-m", "studies", "status", study, "--seeds", "0")
    assert line.startswith("echo: 0 rows, missing: ten,seed=0")
    assert "not measured" in call("-m", "studies", "report", study, "--out", tmp_path / "r.html")

    config = load_cards(str(study))["echo"].configs()["ten"]
    overrides = (
        "model.num_layers=1", "data.source=retrieval", "data.retrieval_tasks=[kv]",
        f"data.prepared_root={config.data.prepared_root}", "train.num_steps=3", "evals.tasks=[kv]",
    )  # fmt: skip
    folder = study / "work" / "echo"
    call("sweep.py", "tiny", "--workdir", folder, *overrides, "model.rotary.base=10", "seed=0,1")
    (folder / "seed=0").rename(folder / "ten,seed=0")
    saved = {path: path.stat().st_mtime_ns for path in folder.rglob("checkpoints/*")}
    run = ("-m", "studies", "run", study, "--seeds", "0", "--workdir", study / "work")
    assert "echo/ten,seed=0: kv" in call(*run)
    assert saved == {path: path.stat().st_mtime_ns for path in folder.rglob("checkpoints/*")}
    (row,) = rows.read_all(study / "rows")
    assert row.key == ("ten", 0, 3 * config.data.batch_size * config.data.context_length)
    assert call(*run) == ""
    assert call("-m", "studies", "status", study, "--seeds", "0") == "echo: 1 rows, complete\n"

    output = call("-m", "studies", "report", study, "--out", tmp_path / "r.html")
    assert "value [95% CI] 5 [4, 6], claimed at least 4.5, n 1 seed, mark undecided" in output
    assert "Does it echo?" in (tmp_path / "r.html").read_text()


def test_fields_may_follow_options(study):
    output = call("-m", "studies", "run", study, "--seeds", "0", "data.pth=x", status=2)
    assert "'data.pth'" in output and "did you mean" in output
