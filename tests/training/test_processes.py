"""Several processes are one run: the same rows and losses, one voice, and they stop together."""

import os
import shutil
import signal

import numpy as np
import pytest

from ropewalk.experiment.run import RunDirectory, find_runs
from ropewalk.utils.errors import RESTART_STATUS
from tests.in_process import call
from tests.training.helpers import Processes, data_state, losses

pytestmark = pytest.mark.slow  # each starts several processes


@pytest.fixture(scope="module")
def arguments(tiny_data):
    return ["tiny", *tiny_data, "train.num_steps=20", "train.save_every=3"]


@pytest.fixture(scope="module")
def whole(arguments, tmp_path_factory):
    """The run as one process makes it."""
    run = tmp_path_factory.mktemp("processes") / "whole"
    call("train.py", *arguments, "--workdir", run)
    return run


@pytest.mark.long
def test_two_processes_with_two_devices_each_evaluate_as_one(whole, environment, tmp_path):
    """Rows are equal to the byte; only the first process writes and prints."""
    options = ("--tasks", "kv", "--lengths", "128", "--documents", "500")
    outs = [tmp_path / "1" / "run", tmp_path / "2" / "run"]
    devices = {**environment, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    for out, number, variables in zip(outs, (1, 2), (environment, devices), strict=True):
        shutil.copytree(whole, out)
        command = ("evaluate.py", out, *options)
        processes = Processes(tmp_path / "logs", number, variables, *command, slurm=True)
        assert processes.exit_statuses(300) == [0] * number, processes.said()
        first, *others = processes.said()
        assert "rows: results.jsonl" in first and not any("rows" in text for text in others)
    one, two = ((out / "results.jsonl").read_bytes() for out in outs)
    assert one == two and one.count(b"\n") > 500


HALF = """
import jax
from ropewalk.data.tasks.kv import Kv

class Half(Kv):
    def documents(self, context, numbers):
        if jax.process_index():
            raise ValueError("this host lacks the text")
        return super().documents(context, numbers)
"""


@pytest.mark.long
def test_processes_with_other_questions_refuse_together(trained_run, environment, tmp_path):
    """A pass of the one would wait for ever for a pass of the other."""
    run, own = shutil.copytree(trained_run, tmp_path / "run"), tmp_path / "own.py"
    own.write_text(HALF)
    command = ("evaluate.py", run, "--documents", "2", "--tasks", f"kv,{own}:Half")
    two = Processes(tmp_path / "2", 2, environment, *command)
    assert two.exit_statuses(100) == [2, 2], two.said()
    first, second = two.said()
    assert f"process 1 has questions of {own}:Half at" in first and "give all hosts" in first
    assert "error" not in second


@pytest.mark.long
def test_one_of_four_is_killed_and_two_go_on(whole, arguments, environment, tmp_path):
    """From shards of four over `fsdp` to copies on two, found as SLURM's, from what is whole."""
    run = tmp_path / "run"
    command = ("train.py", *arguments, "--workdir", run)
    four = Processes(tmp_path / "4", 4, environment, *command, "mesh.data=1", "mesh.fsdp=4")
    four.wait_for_rows(run, 10)  # two checkpoints
    four.running[2].kill()
    statuses = four.exit_statuses(60)
    assert statuses.pop(2) == -signal.SIGKILL
    # Those who notice first say so themselves; whom JAX's own watch is faster to stop, JAX does.
    # Either way the status is one on which a JobSet makes another start.
    assert set(statuses) <= {RESTART_STATUS, -signal.SIGABRT} and RESTART_STATUS in statuses
    for index in (0, 1, 3):
        text = four.said()[index]
        stops = f"process {index} of 4 stops, because of an error or because another process is go"
        assert (stops in text and "Traceback" not in text) or "another task died" in text
    steps = RunDirectory(run).steps()
    assert len(steps) > 1 and steps[-1] < 20
    for path in (run / f"checkpoints/{steps[-1]}/params").glob("**/d/*"):
        path.write_bytes(path.read_bytes()[:20])

    two = Processes(tmp_path / "2", 2, environment, *command, slurm=True)
    assert two.exit_statuses(120) == [0, 0]
    first, second = two.said()
    assert f"DAMAGED: checkpoint {steps[-1]} of {run}: params" in first
    assert f"resuming from step {steps[-2]}" in first and "step" not in second
    np.testing.assert_allclose(losses(run), losses(whole), rtol=1e-5)
    assert len(losses(run)) == 20
    assert data_state(run, 20) == data_state(whole, 20)


def test_a_signal_to_one_stops_all_at_one_step(arguments, environment, tmp_path):
    """Two members of a sweep, each on one of two processes."""
    stopped = tmp_path / "stopped"
    command = ("sweep.py", *arguments, "--workdir", stopped, "seed=0,1", "data.seed=0")
    long = "train.num_steps=100", "train.save_every=100", "mesh.sweep=2", "mesh.data=1"
    two = Processes(tmp_path / "2", 2, environment, *command, *long)
    two.wait_for_rows(stopped / "seed=0", 4)
    os.kill(two.running[1].pid, signal.SIGTERM)
    assert two.exit_statuses(60) == [130, 130]
    first, second = find_runs([stopped])
    (step,) = first.steps()
    assert second.steps() == [step] and 4 <= step < 100
    assert "stopped by a signal to one of the processes" in two.said()[0]
