"""Training: resumed equals uninterrupted, members equal single runs, NaN never gets in."""

import dataclasses
import itertools
import json
import os
import random
import shlex
import signal
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropewalk.data import pipeline
from ropewalk.experiment import overrides
from ropewalk.experiment.checkpoint import restore_params
from ropewalk.experiment.overrides import Member
from ropewalk.experiment.run import RunDirectory
from ropewalk.experiment.stages import split
from ropewalk.training.directories import open_directories
from ropewalk.training.interrupts import Interrupts
from ropewalk.training.plan import check_plan
from ropewalk.training.programs import member_arrays
from ropewalk.training.step import init_state, train_step
from tests.in_process import call
from tests.models import make_plan, tiny_config, train_run
from tests.training.helpers import (
    CONSTANT,
    NINE,
    SPLIT,
    Processes,
    assert_same_run,
    data_state,
    rows_without_times,
)

pytestmark = pytest.mark.slow  # each compiles a train step, or starts processes that do


@pytest.fixture(scope="module")
def tiny(tiny_data):
    return tiny_config(*tiny_data, *NINE)


def test_microbatches_add_up_to_the_whole_batch(tiny):
    batch = next(pipeline.make_batches(pipeline.open_data(tiny.data), start_step=0))
    batch.pop("row_hash")
    state, member = init_state(tiny, jnp.uint32(0)), member_arrays(split(tiny)[:1])
    config = dataclasses.replace(tiny, train=dataclasses.replace(tiny.train, accumulate=4))
    step_fn = jax.jit(train_step, static_argnums=0)
    _, scalars = step_fn(tiny, state, member, batch, np.int32(5))
    _, part_scalars = step_fn(config, state, member, batch, np.int32(5))
    # Rows count different numbers of targets, so a mean of means would be off.
    assert len(set(batch["loss_mask"].sum(axis=1))) > 1
    np.testing.assert_allclose(scalars["loss"], part_scalars["loss"], rtol=1e-5)
    np.testing.assert_allclose(scalars["grad_norm"], part_scalars["grad_norm"], rtol=1e-4)


# Other positions, rows and learning rate; what a run is continued with, and a stage begins with.
CONTINUED = (
    "model.rotary.base=100",
    "data.context_length=32",
    "train.num_steps=6",
    "train.learning_rate=1e-3",
)


@pytest.mark.parametrize("rows", [[12], pytest.param(range(1, 25, 3), marks=pytest.mark.long)])
def test_killed_again_and_again_it_ends_bit_identical(rows, tmp_path, tiny_data, environment):
    """Three stages with positions and moments of their own; two by Muon, one without embedding."""
    stages = "[model.rotary.base=100,train.frozen=[embedding],train.optimizer=muon],"
    stages += "[model.rotary=nope,train.frozen=[]]"
    arguments = ["tiny", *tiny_data, *NINE, *SPLIT, "train.save_every=4"]
    arguments += [f"stages=[{stages}]", "--workdir"]
    call("train.py", *arguments, tmp_path / "whole")
    whole = RunDirectory(tmp_path / "whole")
    before, frozen, after = (restore_params(whole, n)[0]["embedding"] for n in (9, 18, 27))
    np.testing.assert_array_equal(frozen, before)
    assert (after != frozen).all()
    rng = random.Random(0)
    killed = tmp_path / "killed"
    for number in rows:
        started = Processes(tmp_path / "logs", 1, environment, "train.py", *arguments, killed)
        started.wait_for_rows(killed, number)
        time.sleep(rng.random() * 0.05)  # anywhere in a step, or in a save
        started.running[0].kill()
        assert started.exit_statuses(60) == [-signal.SIGKILL], started.said()
    call("train.py", *arguments, killed)
    assert_same_run(tmp_path / "whole", killed)


@pytest.mark.long
def test_a_stage_is_a_run_that_starts_from_the_one_before(tiny, tmp_path):
    """A run, its continuation as a run of its own, and both as one run of two stages."""
    config = overrides.apply(tiny, ["train.save_every=4", "train.keep=1"])
    parent = train_run(config, tmp_path / "parent")
    child_config = overrides.apply(config, [f"start_from={parent.path}", *CONTINUED])
    child = train_run(child_config, tmp_path / "child")
    stages = (CONTINUED, ("model.rotary=nope", "train.num_steps=2"))
    staged = train_run(dataclasses.replace(config, stages=stages), tmp_path / "staged")
    # Stages' ends are kept beside the newest one that keep=1 asks for.
    assert staged.steps() == [9, 15, 17] and child.steps() == [6] and parent.steps() == [9]
    for run, step in ((parent, 9), (child, 15)):
        params, staged_params = restore_params(run)[0], restore_params(staged, step)[0]
        jax.tree.map(np.testing.assert_array_equal, params, staged_params)
    rows = rows_without_times(staged.path)[:15]
    assert [row["step"] for row in rows] == list(range(1, 16))
    assert rows[:9] == rows_without_times(parent.path)
    # Steps and tokens go on: 9 steps of 8 x 64 tokens, then 8 x 32 each.
    assert [row["tokens"] for row in rows[8:11]] == [4608, 4864, 5120]
    child_rows = [{"step": None, "tokens": None} | row for row in rows_without_times(child.path)]
    for row, other in zip(rows[9:], child_rows, strict=True):
        assert row == other | {"step": row["step"], "tokens": row["tokens"]}
    assert child_rows[0]["learning_rate"] == pytest.approx(1e-3 / 3)  # warmup 2: begins again
    digests = [data_state(run, step)["digest"] for run, step in ((parent, 9), (child, 6))]
    assert data_state(staged, 15)["digest"] == sum(digests) % 2**64
    assert data_state(staged, 15)["rows"] == 15 * 8
    for run, step, stage in ((child, 6, 0), (staged, 15, 1)):
        path = run.checkpoints_path / str(step) / "config/metadata"
        assert json.loads(path.read_text())["stage"] == stage
        assert run.config_at(step).data.context_length == 32
    assert child.config.start_from == f"{parent.path}@9"


def test_sigterm_saves_and_says_how_to_go_on(tmp_path, tiny_data, environment):
    # Saves would come only at the end: what is resumed is the signal's own checkpoint.
    arguments = ["tiny", *tiny_data, *CONSTANT, "train.num_steps=100", "train.save_every=100"]
    arguments += ["evals.tasks=[kv]", "--workdir"]  # brackets are no markup
    run = tmp_path / "run"
    started = Processes(tmp_path / "logs", 1, environment, "train.py", *arguments, run)
    started.wait_for_rows(run, 5)
    started.running[0].send_signal(signal.SIGTERM)
    assert started.exit_statuses(120) == [130]
    (messages,) = started.said()
    (step,) = RunDirectory(run).steps()
    assert 5 <= step < 100
    assert f"stopped by SIGTERM at step {step} of 100; saved" in " ".join(messages.split())
    assert shlex.join(["python", "train.py", *arguments, str(run)]) in messages
    assert call("train.py", *arguments, run).count(f"resuming from step {step}") == 1
    typed = {tuple(shlex.split(line)[2:]) for line in RunDirectory(run).read_commands()}
    assert typed == {(*arguments, str(run))}


@pytest.mark.parametrize("name", ["SIGHUP", "SIGTERM", "SIGINT"])
def test_a_signal_asks_for_a_save(name):
    with Interrupts() as interrupts:
        os.kill(os.getpid(), getattr(signal, name))
        assert interrupts.stops_at(3) and interrupts.received == name


def test_nohup_is_obeyed():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with Interrupts() as interrupts:
        os.kill(os.getpid(), signal.SIGHUP)
        assert not interrupts.stops_at(3)
    signal.signal(signal.SIGHUP, before)


def test_a_short_trial_of_a_config_is_all_warmup_and_says_so(tmp_path, tiny_data):
    config = tiny_config(*tiny_data, "train.warmup_steps=100", "train.num_steps=3")
    assert config.train.warmup_steps == 3
    (note,) = check_plan([Member(RunDirectory(tmp_path), (), config)]).notes()
    assert "all 3 steps are warmup" in note


def test_another_machine_is_named_at_a_resume(tmp_path, tiny_data, monkeypatch, capsys):
    plan = make_plan([tiny_config(*tiny_data)], [RunDirectory(tmp_path / "run")])
    for flags, notes in (("", 0), ("", 0), ("--xla_cpu_enable_fast_math=true", 1)):
        monkeypatch.setenv("XLA_FLAGS", flags)
        with open_directories(plan, ""):
            assert capsys.readouterr().err.count("XLA_FLAGS= (now --xla_cpu") == notes


@pytest.mark.parametrize(("number", "status"), [(0, 42), (signal.SIGTERM, 130)])
def test_a_killed_data_worker_ends_the_run_with_a_checkpoint(
    number, status, tmp_path, tiny_data, monkeypatch
):
    """Grain raises this error in the main process; a signal may reach the workers too."""
    make_batches = pipeline.make_batches

    def make_three(data, **options):
        yield from itertools.islice(make_batches(data, **options), 3)
        os.kill(os.getpid(), number)
        raise RuntimeError("Worker process was terminated unexpectedly with exit code -9. Search")

    monkeypatch.setattr(pipeline, "make_batches", make_three)
    messages = call("train.py", "tiny", *tiny_data, *NINE, "--workdir", tmp_path, status=status)
    assert RunDirectory(tmp_path).steps() == [3] and "Traceback" not in messages
    expected = "by SIGTERM at step 3 of 9; saved" if number else "error: a data worker was killed"
    assert expected in messages.splitlines()[-1]
