"""A run that starts from another one has its model and tokenizer, unless an override says else."""

import dataclasses
import shutil
from pathlib import Path

import pytest

from ropewalk.configs import find_config
from ropewalk.experiment import overrides
from ropewalk.experiment.inherit import inherit
from ropewalk.experiment.run import RunDirectory

TINY = find_config("tiny")
PATTERN = "[rope(base=5e6),nope]"


def make_parent(path: Path, *changes: str, steps: tuple[int, ...] = (5,)) -> RunDirectory:
    """A run directory with a config, empty checkpoints and a tokenizer's file."""
    run = RunDirectory(path)
    run.write_config(overrides.apply(TINY, changes), changes)
    for step in steps:
        (run.checkpoints_path / str(step)).mkdir(parents=True)
    run.tokenizer_path.touch()
    return run


def test_the_parents_model_wins_over_the_files_and_overrides_over_both(tmp_path):
    parent = make_parent(tmp_path / "a", f"model.rotary={PATTERN}", "model.norm_epsilon=1e-6")
    start = f"start_from={parent.path}"
    child = inherit(TINY, [start])
    assert child.model == parent.config.model and child.start_from == f"{parent.path}@5"
    assert child.data == TINY.data
    changed = inherit(TINY, [start, "model.rotary=rope(base=1e6)", "data.source=retrieval"])
    assert changed.model.norm_epsilon == 1e-6
    assert changed.data.tokenizer == str(parent.tokenizer_path)
    with pytest.raises(ValueError, match=r"data\.vocab_size=500: a run keeps the tokenizer"):
        inherit(TINY, [start, "data.vocab_size=500"])


def test_a_file_that_names_its_parent_and_stages_are_requests(tmp_path):
    stages = "stages=[[model.rotary=nope,train.num_steps=4]]"
    parent = make_parent(tmp_path / "a", "train.num_steps=3", stages, steps=(3, 7))
    assert inherit(TINY, [f"start_from={parent.path}@3"]).model == TINY.model
    child = inherit(TINY, [f"start_from={parent.path}", stages])
    assert child.model == parent.config_at(7).model != TINY.model and child.stages
    file = dataclasses.replace(TINY, start_from=str(parent.path))
    assert inherit(file, []).model == TINY.model
    assert inherit(file, [f"start_from={parent.path}"]).model == child.model


def test_a_started_run_keeps_what_it_inherited(tmp_path):
    parent = make_parent(tmp_path / "a", f"model.rotary={PATTERN}")
    command = [f"start_from={parent.path}/", "data.source=retrieval"]  # as shells complete it
    run = RunDirectory(tmp_path / "run")
    child = inherit(TINY, command, run)
    run.write_config(child, command)
    for make in (lambda: make_parent(parent.path, steps=(9,)), lambda: shutil.rmtree(parent.path)):
        make()
        again = RunDirectory(run.path)
        assert inherit(TINY, command, again) == child
        other = inherit(TINY, [*command, "model.qk_norm=true"], again)
        with pytest.raises(ValueError, match=r"model\.qk_norm=False, and this one has .*=True"):
            again.check_resumable(other)


def test_a_parent_is_the_same_however_its_path_is_spelled(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    parent = make_parent(Path("a"), f"model.rotary={PATTERN}")
    other = make_parent(tmp_path / "other" / "a", "model.rotary=nope")
    run = RunDirectory(tmp_path / "run")
    run.write_config(inherit(TINY, ["start_from=a"], run), [])
    (tmp_path / "away").mkdir()
    monkeypatch.chdir(tmp_path / "away")
    absolute = tmp_path / parent.path
    for start in (absolute, f"{absolute}@5", "../a"):
        again = inherit(TINY, [f"start_from={start}"], RunDirectory(run.path))
        RunDirectory(run.path).check_resumable(again)
        assert again == run.config
    again = inherit(TINY, [f"start_from={other.path}"], RunDirectory(run.path))
    with pytest.raises(ValueError, match="and this one has"):
        RunDirectory(run.path).check_resumable(again)
