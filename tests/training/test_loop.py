"""Training: resumed equals uninterrupted, members equal single runs, NaN never gets in."""

import dataclasses
import json
import random
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropewalk.data import pipeline
from ropewalk.experiment import overrides
from ropewalk.experiment.checkpoint import restore_params
from ropewalk.experiment.run import RunDirectory
from ropewalk.training.loop import train
from ropewalk.training.programs import MemberArrays
from ropewalk.training.step import State, init_state, train_step
from tests.conftest import ROOT
from tests.in_process import call
from tests.models import make_plan, tiny_config, train_run
from tests.training.helpers import assert_same_run, data_state, rows_without_times

pytestmark = pytest.mark.slow  # each compiles a train step, or starts processes that do


@pytest.fixture(scope="module")
def tiny(tiny_data):
    return tiny_config(*tiny_data)


@pytest.fixture(scope="module")
def batch(tiny):
    batch = next(pipeline.make_batches(pipeline.open_data(tiny.data), start_step=0))
    batch.pop("row_hash")
    return batch


def one_member(config) -> tuple[State, MemberArrays]:
    table = config.model.position_table(config.data.context_length)
    member = MemberArrays(table, np.float32(config.train.learning_rate))
    return init_state(config, jnp.uint32(config.seed)), member


step_fn = jax.jit(train_step, static_argnums=0)


def test_microbatches_add_up_to_the_whole_batch(tiny, batch):
    state, member = one_member(tiny)
    config = dataclasses.replace(tiny, train=dataclasses.replace(tiny.train, accumulate=4))
    _, scalars = step_fn(tiny, state, member, batch, np.int32(5))
    _, part_scalars = step_fn(config, state, member, batch, np.int32(5))
    # Rows count different numbers of targets, so a mean of means would be off.
    assert len(set(batch["loss_mask"].sum(axis=1))) > 1
    np.testing.assert_allclose(scalars["loss"], part_scalars["loss"], rtol=1e-5)
    np.testing.assert_allclose(scalars["grad_norm"], part_scalars["grad_norm"], rtol=1e-4)


def start(arguments: list[str], environment) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "train.py", *arguments], cwd=ROOT, env=environment,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def wait_for_rows(process: subprocess.Popen, metrics: Path, rows: int) -> None:
    """Until `rows` steps are logged, or the process has ended."""
    while process.poll() is None:
        if metrics.exists() and metrics.read_text().count("\n") >= rows:
            return
        time.sleep(0.005)


# Other positions, rows and learning rate; what a run is continued with, and a stage begins with.
CONTINUED = (
    "model.rotary.base=100",
    "data.context_length=32",
    "train.num_steps=6",
    "train.learning_rate=1e-3",
)


@pytest.mark.parametrize("kills", [2, pytest.param(10, marks=pytest.mark.long)])
def test_killed_again_and_again_it_ends_bit_identical(kills, tmp_path, tiny_data, environment):
    """In three stages, each with rows, positions and moments of its own."""
    stages = f"stages=[[{','.join(CONTINUED)},train.num_steps=20],[model.rotary=nope]]"
    arguments = ["tiny", *tiny_data, "train.num_steps=6", "train.save_every=3", stages, "--workdir"]
    call("train.py", *arguments, tmp_path / "whole")
    rng = random.Random(0)
    killed = tmp_path / "killed"
    for attempt in range(kills):
        process = start([*arguments, str(killed)], environment)
        wait_for_rows(process, killed / "metrics.jsonl", 1 + 3 * attempt + rng.randrange(5))
        time.sleep(rng.random() * 0.05)  # anywhere in a step, or in a save
        process.kill()
        _, messages = process.communicate()
        assert process.returncode == -signal.SIGKILL, f"ended before it could be killed: {messages}"
    call("train.py", *arguments, killed)
    assert_same_run(tmp_path / "whole", killed)


@pytest.fixture(scope="module")
def parent(tiny, tmp_path_factory) -> RunDirectory:
    config = overrides.apply(tiny, ["train.num_steps=8", "train.save_every=3", "train.keep=1"])
    return train_run(config, tmp_path_factory.mktemp("parent") / "run")


@pytest.mark.long
def test_a_stage_is_a_run_that_starts_from_the_one_before(parent, tmp_path):
    """A run, its continuation as a run of its own, and both as one run of two stages."""
    config = parent.config
    child_config = overrides.apply(config, [f"start_from={parent.path}", *CONTINUED])
    child = train_run(child_config, tmp_path / "child")
    stages = (CONTINUED, ("model.rotary=nope", "train.num_steps=2"))
    staged = train_run(dataclasses.replace(config, stages=stages), tmp_path / "staged")
    # Stages' ends are kept beside the newest one that keep=1 asks for.
    assert staged.steps() == [8, 14, 16] and child.steps() == [6] and parent.steps() == [8]
    for run, step in ((parent, 8), (child, 14)):
        params, staged_params = restore_params(run)[0], restore_params(staged, step)[0]
        jax.tree.map(np.testing.assert_array_equal, params, staged_params)
    rows = rows_without_times(staged.path)[:14]
    assert [row["step"] for row in rows] == list(range(1, 15))
    assert rows[:8] == rows_without_times(parent.path)
    # Steps and tokens go on: 8 steps of 8 x 64 tokens, then 8 x 32 each.
    assert [row["tokens"] for row in rows[7:10]] == [4096, 4352, 4608]
    child_rows = [{"step": None, "tokens": None} | row for row in rows_without_times(child.path)]
    for row, other in zip(rows[8:], child_rows, strict=True):
        assert row == other | {"step": row["step"], "tokens": row["tokens"]}
    assert child_rows[0]["learning_rate"] == pytest.approx(1e-3 / 3)  # warmup 2: begins again
    digests = [data_state(run, step)["digest"] for run, step in ((parent, 8), (child, 6))]
    assert data_state(staged, 14)["digest"] == sum(digests) % 2**64
    assert data_state(staged, 14)["rows"] == 14 * 8
    for run, step, stage in ((child, 6, 0), (staged, 14, 1)):
        path = run.checkpoints_path / str(step) / "config/metadata"
        assert json.loads(path.read_text())["stage"] == stage
        assert run.config_at(step).data.context_length == 32
    assert child.config.start_from == f"{parent.path}@8"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["stages=[[model.tie_embeddings=false]]"], "stage 1: parameter output is"),
        (
            ["stages=[[train.learning_rate=1e-4],[data.context_length=3]]"],
            "kv does not fit length=3; the shortest that works with this tokenizer is 4",
        ),
        (["start_from={parent}", "data.vocab_size=500"], "use data.tokenizer=.*tokenizer.model"),
    ],
)
def test_what_is_wrong_in_any_stage_is_refused_before_anything_is_written(
    tiny, parent, tmp_path, changes, message
):
    changes = [change.format(parent=parent.path) for change in changes]
    run = RunDirectory(tmp_path / "run")
    with pytest.raises(ValueError, match=message) as caught:
        train(make_plan([overrides.apply(tiny, changes)], [run]))
    assert "\n" not in str(caught.value)
    assert not run.path.exists()


def test_sigterm_saves_and_says_how_to_go_on(tmp_path, tiny_data, environment):
    # Saves would come only at the end: what is resumed is the signal's own checkpoint.
    arguments = ["tiny", *tiny_data, "train.num_steps=100", "train.save_every=100"]
    arguments += ["evals.tasks=[kv]", "--workdir"]  # brackets are no markup
    run = tmp_path / "run"
    process = start([*arguments, str(run)], environment)
    wait_for_rows(process, run / "metrics.jsonl", 5)
    process.send_signal(signal.SIGTERM)
    _, messages = process.communicate(timeout=120)
    assert process.returncode == 130
    (step,) = RunDirectory(run).steps()
    assert 5 <= step < 100
    assert f"stopped by SIGTERM at step {step} of 100; saved" in " ".join(messages.split())
    assert shlex.join(["python", "train.py", *arguments, str(run)]) in messages
    assert call("train.py", *arguments, run).count(f"resuming from step {step}") == 1
    typed = {tuple(shlex.split(line)[2:]) for line in RunDirectory(run).read_commands()}
    assert typed == {(*arguments, str(run))}
