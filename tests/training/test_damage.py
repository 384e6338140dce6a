"""Damaged checkpoints: never trained on, never evaluated, named in a line."""

import errno
import functools
import json
import os
import shutil
import time
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from ropewalk.data.pipeline import open_data
from ropewalk.experiment import overrides
from ropewalk.experiment.checkpoint import Checkpoints, DataState, restore_params
from ropewalk.experiment.mesh import make_mesh
from ropewalk.experiment.run import RunDirectory
from ropewalk.training.directories import open_directories
from ropewalk.training.loop import open_state
from ropewalk.training.members import abstract_state, first_state, shardings_of
from tests.damage import flip
from tests.models import make_plan, tiny_config

CONFIGS = [
    tiny_config("train.keep=3", "data.seed=0", f"model.rotary.base={base}") for base in (10, 1000)
]
STEPS = [2, 4, 6]


@functools.cache
def state_at(step: int):
    """A state of the shapes of `tiny`, with different numbers at every step."""
    target = abstract_state(CONFIGS[0], 1, make_mesh(CONFIGS[0], 1))
    state = first_state(CONFIGS[:1], shardings_of(target))
    numbers = np.random.default_rng(step)
    changed = jax.tree.map(lambda x: (x + numbers.normal(9, size=x.shape)).astype(x.dtype), state)
    return changed._replace(skipped=state.skipped)


@pytest.fixture(scope="module")
def saved(tmp_path_factory, tiny_data) -> Path:
    """Two members with checkpoints of three steps."""
    folder = tmp_path_factory.mktemp("saved")
    fingerprint = open_data(overrides.apply(CONFIGS[0], tiny_data).data).fingerprint
    for index, config in enumerate(CONFIGS):
        run = RunDirectory(folder / f"{index}")
        run.write_config(config, [])
        checkpoints = Checkpoints(run, keep=3)
        for step in STEPS:
            state = state_at(step + index)
            data = DataState(fingerprint=fingerprint, rows=8 * step)
            checkpoints.save(step, state.params, state.opt_state, data, config)
        checkpoints.close()
    return folder


@pytest.fixture
def runs(saved, tmp_path) -> list[RunDirectory]:
    shutil.copytree(saved, tmp_path, dirs_exist_ok=True)
    return [RunDirectory(tmp_path / f"{index}") for index in range(2)]


@pytest.fixture
def resume(tiny_data):
    """Return the state and step that runs go on from together, and the messages."""

    def resume(runs: list[RunDirectory]):
        configs = [overrides.apply(CONFIGS[int(run.name)], tiny_data) for run in runs]
        plan, messages = make_plan(configs, runs), []
        state, data, step = open_state(plan, messages.append)
        assert data.rows == 8 * step
        return state, step, messages

    return resume


def largest(folder: Path) -> Path:
    return max(folder.rglob("d/*"), key=lambda path: path.stat().st_size)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))


# What is done to a checkpoint, and what is said of it.
DAMAGES = {
    "params.": lambda at: flip(largest(at / "params")),
    "params.{} cannot be read": lambda at: cut(largest(at / "params")),
    "opt_state.": lambda at: flip(largest(at / "opt_state")),
    "data: not what was saved": lambda at: change(at / "data/metadata", '"rows": 48', '"rows": 40'),
    "config: ": lambda at: cut(at / "config/metadata"),
    "digests: not what was saved": lambda at: change(
        at / "digests/metadata", '"params.final_norm', '"params.final_morn'
    ),
    "data: missing": lambda at: [shutil.rmtree(path) for path in at.glob("*/")],
}


@pytest.mark.parametrize("expected", DAMAGES)
def test_a_damaged_checkpoint_is_named_and_the_one_before_taken(expected, runs, resume):
    (run, _) = runs
    DAMAGES[expected](run.checkpoints_path / "6")
    start, _, end = expected.partition("{}")
    if not expected.startswith("opt_state"):
        with pytest.raises(ValueError) as caught:
            restore_params(run)
        text = str(caught.value)
        assert text.startswith(f"{run.path}: checkpoint 6 is damaged ({start}") and end in text
        assert "take step 4" in text
    state, step, (message,) = resume([run])
    assert step == 4
    assert message.startswith(f"DAMAGED: checkpoint 6 of {run.path}: {start}") and end in message
    jax.tree.map(np.testing.assert_array_equal, state, state_at(4))
    # Out of the way, for the run comes to step 6 again, and not gone.
    assert run.steps() == [2, 4] and (run.checkpoints_path / "6.damaged").is_dir()
    assert message.endswith(f"it is now {run.checkpoints_path}/6.damaged")
    assert resume([run])[1:] == (4, [])


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
def test_an_error_of_the_disk_while_arrays_are_read_is_no_damage(number, runs, monkeypatch, resume):
    """TensorStore raises ValueError, with the system's reason somewhere in a long text."""
    text = f"Encountered error while reading array: {'x' * 500} [OS error: {os.strerror(number)}]"

    def fail(*_, **__):
        raise ValueError(f"{text} {'y' * 500}")

    monkeypatch.setattr(ocp.PyTreeCheckpointHandler, "restore", fail)
    for read in (restore_params, lambda run: resume([run])):
        with pytest.raises(ValueError, match=f"could not be read .*{os.strerror(number)}"):
            read(runs[0])
    assert runs[0].steps() == STEPS


def test_members_go_on_together_from_what_is_whole_in_all(runs, resume):
    flip(largest(runs[1].checkpoints_path / "6/opt_state"))
    shutil.rmtree(runs[0].checkpoints_path / "4/params")
    state, step, messages = resume(runs)
    assert step == 2 and len(messages) == 2
    for index in range(2):
        member_state = jax.tree.map(lambda x, index=index: x[index], state)
        jax.tree.map(np.testing.assert_array_equal, member_state, state_at(2 + index))
    assert [run.steps() for run in runs] == [[2, 6], [2, 4]]


def test_what_a_stopped_save_left_is_removed(runs, resume):
    """Three are kept, of which steps 0 and 1 are too old; a stage's end is not."""
    run, _ = runs
    for step in (0, 1):
        shutil.copytree(run.checkpoints_path / "2", run.checkpoints_path / str(step))
    unfinished = run.checkpoints_path / "8.orbax-checkpoint-tmp"
    shutil.copytree(run.checkpoints_path / "2", unfinished)
    Checkpoints(run, keep=3, always=[0]).remove_old(run.steps(), 6)
    assert run.steps() == [0, 2, 4, 6]
    # Later than what is gone on from, a member of a sweep is ahead of the others.
    Checkpoints(run, keep=1).remove_old([0, 2, 4], 4)
    assert run.steps() == [4, 6]
    cut(run.checkpoints_path / "4/_CHECKPOINT_METADATA")  # orbax's own, of when it saved
    assert resume(runs)[1] == 6
    while unfinished.exists():  # a thread of orbax removes it
        time.sleep(0.01)


def test_a_checkpoint_past_the_last_step_is_not_the_runs(runs):
    run, end = runs[0], CONFIGS[0].train.num_steps
    shutil.copytree(run.checkpoints_path / "6", run.checkpoints_path / f"{end + 1}")
    for name in ("²", "9" * 30):
        (run.checkpoints_path / name).mkdir()
    assert run.steps()[-1] == end + 1
    message = rf"checkpoint {end + 1} is past the run's last step, {end}; delete"
    for read in (restore_params, lambda run: make_plan(CONFIGS[:1], [run])):
        with pytest.raises(ValueError, match=message):
            read(run)


def test_a_removal_that_was_stopped_is_finished(runs):
    left = runs[0].checkpoints_path / "2.deleted"
    (runs[0].checkpoints_path / "2").rename(left)
    Checkpoints(runs[0], keep=3)
    assert not left.exists()


def test_a_save_that_orbax_does_not_make_is_an_error(runs):
    state = state_at(4)
    checkpoints = Checkpoints(runs[0], keep=3)
    with pytest.raises(ValueError, match=r"checkpoints/4 was not saved"):
        checkpoints.save(4, state.params, state.opt_state, DataState(fingerprint=""), CONFIGS[0])


def test_a_config_that_was_edited_is_refused(runs):
    run, _ = runs
    change(run.path / "config.json", '"base": 10.0', '"base": 11.0')
    message = r"config.json says model.rotary.base=11.0 but checkpoint 6 was made with 10.0"
    with pytest.raises(ValueError, match=message):
        restore_params(RunDirectory(run.path))
    edited = overrides.apply(CONFIGS[0], ["model.rotary.base=11"])
    with pytest.raises(ValueError, match=message):
        make_plan([edited], [RunDirectory(run.path)])
    # How a run is kept and watched is its own affair.
    shutil.copyfile(runs[1].path / "config.json", run.path / "config.json")
    change(run.path / "config.json", '"base": 1000.0', '"base": 10.0')
    change(run.path / "config.json", '"keep": 3', '"keep": 9')
    assert restore_params(RunDirectory(run.path))[1] == 6
    change(run.path / "config.json", '"overrides": []', '"overrides": ["seed=1"]')
    with pytest.raises(ValueError, match=r"says overrides=.*seed=1.* but checkpoint 6 was made"):
        restore_params(RunDirectory(run.path))


def test_a_config_comes_back_from_a_checkpoint(runs, resume):
    run, _ = runs
    before = (run.path / "config.json").read_text()
    reads = lambda run: run.config, lambda run: resume([run]), restore_params
    for spoil in (lambda path: path.unlink(), cut, lambda path: path.write_text("[]")):
        spoil(run.path / "config.json")
        for read in reads:
            with pytest.raises(ValueError, match=r"copy checkpoints/6/config/metadata to config"):
                read(RunDirectory(run.path))
        shutil.copyfile(run.checkpoints_path / "6/config/metadata", run.path / "config.json")
        fresh = RunDirectory(run.path)
        assert fresh.record == json.loads(before) and fresh.config == CONFIGS[0]
        assert resume([fresh])[1] == 6


def test_a_config_that_another_process_began_with_meanwhile_is_refused(tiny_data, tmp_path):
    """Two trainers start at once: the second is refused, and names the field that differs."""
    config = overrides.apply(CONFIGS[0], tiny_data)
    plan = make_plan([config], [RunDirectory(tmp_path / "run")])
    plan.runs[0].write_config(overrides.apply(config, ["model.rotary.base=7"]), [])
    message = r"holds a run with model\.rotary\.base=7"
    with pytest.raises(ValueError, match=message), open_directories(plan, ""):
        pass
