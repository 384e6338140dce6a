"""A compiled step that computes another loss, and an update that never ends, stop the process."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from configs import find_config
from experiment import overrides
from experiment.run import RunDirectory
from tests.conftest import ROOT
from training import loop
from training.plan import make_plan
from training.watchdog import check_first_loss
from utils.errors import HANG_STATUS


def plan_tiny(tiny_data, folder, *changes: tuple[str, ...]):
    configs = [
        overrides.apply(find_config("tiny"), [*tiny_data, "train.num_steps=2", *change])
        for change in changes
    ]
    return make_plan(configs, [RunDirectory(folder / str(i)) for i in range(len(configs))])


@pytest.mark.parametrize(("dtype", "error"), [("float32", 3e-3), ("bfloat16", 3e-2)])
def test_a_step_with_another_loss_saves_nothing(tiny_data, tmp_path, monkeypatch, dtype, error):
    """The loss of one member of two is wrong in the step's program only."""
    compile_step = loop.compile_step

    def compile_wrong(*arguments):
        step_fn = compile_step(*arguments)

        def wrong(*inputs):
            state, scalars = step_fn(*inputs)
            return state, scalars | {"loss": scalars["loss"].at[1].multiply(1 + error)}

        return wrong

    monkeypatch.setattr(loop, "compile_step", compile_wrong)
    shared = f"model.compute_dtype={dtype}"
    plan = plan_tiny(tiny_data, tmp_path, (shared,), (shared, "model.rotary.base=99"))
    with pytest.raises(ValueError, match=rf"{tmp_path}/1: the train step computes a loss of 6"):
        loop.train(plan)
    assert not any(run.steps() for run in plan.runs)


def test_only_a_difference_is_an_error():
    """A diverged run has no loss in either program, and a sound step has one."""
    run = [RunDirectory(Path("run"))]
    none, sums = np.float32(np.nan), np.array([6.0, 3.0], np.float32)
    check_first_loss(none, sums * none, run, "float32")
    check_first_loss(np.float32(2.001), sums, run, "float32")
    check_first_loss(np.float32(0), np.zeros(2, np.float32), run, "float32")  # no targets
    for step_loss in (none, np.float32(2.003)):
        with pytest.raises(ValueError, match="a forward pass 2"):
            check_first_loss(step_loss, sums, run, "float32")


HANG = """
import sys, time
from experiment import checkpoint
from training import loop, watchdog
from training.command import train
watchdog._LEAST = watchdog._LONGEST_SAVE = 8.0
watchdog._EVERY = 0.05
read = loop._Batches.read_next
def hang(self):
    if self._data_state.rows >= 12 * self._batch_size:
        time.sleep(60)
    time.sleep(0.06)
    return read(self)
def hang_closing(self):
    self._manager.wait_until_finished()
    time.sleep(60)
if sys.argv.pop(1) == "update":
    loop._Batches.read_next = hang
else:
    checkpoint.Checkpoints.close = hang_closing
sys.exit(train("test"))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("event", "saved"), [("update", 10), ("save", 2)])
def test_what_never_ends_ends_the_process(tiny_data, tmp_path, environment, event, saved):
    command = [event, "tiny", "--workdir", tmp_path / "run", *tiny_data, "train.save_every=5"]
    command += ["train.num_steps=2"] if event == "save" else []
    done = subprocess.run(
        [sys.executable, "-c", HANG, *map(str, command)],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == HANG_STATUS, done.stderr
    assert "in hang" in done.stderr  # where the main thread waits
    assert f"no {event} ended for" in done.stderr.splitlines()[-1]
    assert RunDirectory(tmp_path / "run").steps()[-1] == saved


SUSPENDED = """
import sys, time
from training import watchdog
watchdog._LEAST, watchdog._EVERY = 1.0, 0.05
with watchdog.Watchdog() as dog:
    dog.start()
    print("started", flush=True)
    sys.stdin.readline()
    time.sleep(0.3)
"""


@pytest.mark.slow
def test_a_suspended_process_does_not_hang(environment):
    """It stands still for 2.5 times as long as an update may take, as after Ctrl-Z."""
    process = subprocess.Popen(
        [sys.executable, "-c", SUSPENDED],
        cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "started\n"
    process.send_signal(signal.SIGSTOP)
    time.sleep(2.5)
    process.send_signal(signal.SIGCONT)
    process.communicate("go on\n")
    assert process.returncode == 0
