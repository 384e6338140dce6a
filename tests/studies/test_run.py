"""Runs of a study: rows of finished ones, and none of one that was stopped."""

from pathlib import Path

import pytest

from ropewalk.studies import load_cards, rows, run
from tests.in_process import call

CARD = """
name = "echo"
question = "?"
config = "tiny"
overrides = [
    "model.num_layers=1", "data.source=retrieval", "data.retrieval_tasks=[kv]",
    "data.prepared_root={data}", "train.num_steps=3", "train.save_every=10", "evals.tasks=[kv]",
]
members.ten = ["model.rotary.base=10"]
measurements = [{{ name = "whole" }}, {{ name = "headless", masked_heads = [[0, 1]] }}]
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


@pytest.fixture
def study(tmp_path, shared_folder) -> Path:
    """A folder with one card that trains once, on prepared data."""
    folder = tmp_path / "study"
    folder.mkdir()
    (folder / "__init__.py").write_text('"""Does it echo?"""\n')
    (folder / "measures.py").write_text(MEASURES)
    (folder / "echo.toml").write_text(CARD.format(data=shared_folder / "data"))
    return folder


def test_a_stopped_study_appends_no_row(study, monkeypatch):
    """Its sweep has saved, and the same command continues; the runs record it."""
    lines = []
    monkeypatch.setattr(run, "train_sweep", lambda sweep, command: lines.append(command))
    with pytest.raises(KeyboardInterrupt):
        call("-m", "studies", "run", study, "--seeds", "0", "--workdir", study / "work")
    assert not (study / "rows").exists()
    assert lines == [f"ropewalk studies run {study} --seeds 0 --workdir {study}/work"]


def test_a_member_that_cannot_train_is_refused_before_another_trains(study):
    """A card may say what no config refuses by itself."""
    with (study / "zz.toml").open("w") as file:  # after echo.toml
        print('name = "last"\nquestion = "?"\nconfig = "tiny"\n[members]', file=file)
        print('odd = ["model.rotary=p_rope(base=10,rotary_fraction=0.3)"]', file=file)
    line = call("-m", "studies", "status", study, "--seeds", "0,1,2,3")
    assert "last: 0 rows, missing: odd,seed=0; odd,seed=1; odd,seed=2; and 1 more" in line
    line = call("-m", "studies", "run", study, "--workdir", study / "work", status=2)
    assert "rotary_fraction=0.3 of 16 features" in line
    assert not (study / "rows").exists()


@pytest.mark.long
def test_a_finished_sweep_is_measured_and_a_study_by_path_is_reported(study, tmp_path):
    """A run that sweep.py trained needs no other training."""
    line = call("-m", "studies", "status", study, "--seeds", "0")
    assert line.startswith("echo: 0 rows, missing: ten,seed=0")
    assert "not measured" in call("-m", "studies", "report", study, "--out", tmp_path / "r.html")
    assert f"ropewalk studies run {study} --only echo" in (tmp_path / "r.html").read_text()

    card = load_cards(str(study))["echo"]
    config = card.configs()["ten"]
    overrides = [change for change in card.overrides if "save_every" not in change]
    folder = study / "work" / "echo"
    call("sweep.py", "tiny", "--workdir", folder, *overrides, "model.rotary.base=10", "seed=0,1")
    (folder / "seed=0").rename(folder / "ten,seed=0")
    saved = {path: path.stat().st_mtime_ns for path in folder.rglob("checkpoints/*")}
    command = "-m", "studies", "run", study, "--seeds", "0", "--workdir", study / "work"
    assert "echo/ten,seed=0: kv" in call(*command)
    assert saved == {path: path.stat().st_mtime_ns for path in folder.rglob("checkpoints/*")}
    (row,) = rows.read_all(study / "rows")
    assert [answers.measurement for answers in row.answers] == ["whole", "headless"]
    assert row.final == "as planned"
    assert row.key == ("ten", 0, 3 * config.data.batch_size * config.data.context_length)
    assert call(*command) == ""
    assert call("-m", "studies", "status", study, "--seeds", "0") == "echo: 1 row, complete\n"

    output = call("-m", "studies", "report", study, "--out", tmp_path / "r.html")
    assert "value [95% CI] 5 [4, 6], claimed at least 4.5, n 1 seed, mark undecided" in output
    assert "Does it echo?" in (tmp_path / "r.html").read_text()
