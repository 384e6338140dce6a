"""tpu/slurm/submit.sh and tpu/slurm/job.sh on SLURM: interrupted runs end as the same run."""

import sys
import time
from pathlib import Path

import numpy as np
import pytest

from ropewalk.experiment.run import RunDirectory
from tests.slurm.cluster import Cluster, missing, wait_for
from tests.training.helpers import data_state, losses

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(
        bool(missing()),
        reason=f"not installed: {', '.join(missing())}; apt-get install slurm-wlm munge",
    ),
]
STEPS = 150
ONE = ("--gpus", 1, "--cpus", 1)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, environment):
    folder = tmp_path_factory.mktemp("slurm")
    running = Cluster(folder, {**environment, "PYTHON": sys.executable})
    try:
        running.start()
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="module")
def arguments(tiny_data):
    return ["tiny", *tiny_data, f"train.num_steps={STEPS}", "train.save_every=30"]


@pytest.fixture(scope="module")
def reference(arguments, run_script, tmp_path_factory):
    """Train the run in one process without SLURM."""
    run = tmp_path_factory.mktemp("reference") / "run"
    run_script("train.py", *arguments, "--workdir", run)
    return run


def assert_same(run: Path, reference: Path, *, exactly: bool = True) -> None:
    assert len(losses(run)) == STEPS
    assert data_state(run) == data_state(reference) and data_state(run)["digest"]
    if exactly:
        assert losses(run) == losses(reference)
    else:  # sums over several devices are rounded in another order
        np.testing.assert_allclose(losses(run), losses(reference), rtol=1e-4)


def log_of(run: Path) -> str:
    """Return the output of the jobs of a run on one line."""
    text = " ".join(path.read_text(errors="replace") for path in run.glob("slurm-*.log"))
    return " ".join(text.split())


def wait_for_steps(run: Path, more: int = 5) -> None:
    """Wait until its job has trained a few steps."""
    step = len(losses(run)) + more
    wait_for(lambda: len(losses(run)) >= step, 200, f"step {step}: {log_of(run)[-2000:]}")


@pytest.mark.parametrize("shape", [ONE, ("--gpus", 2, "--cpus", 1)], ids=["one task", "two tasks"])
def test_tasks_of_one_node(shape, cluster, arguments, reference, tmp_path):
    run = tmp_path / "run"
    job = cluster.submit("run", *shape, "--workdir", run, *arguments)
    assert cluster.wait(job) == "COMPLETED", log_of(run)
    assert_same(run, reference, exactly=shape == ONE)
    # Only the first process prints.
    assert log_of(run).count("finished. Next: python evaluate.py") == 1
    assert cluster.shown(job)["CPUs/Task"] == "1"


def test_an_array_has_a_task_for_every_member(cluster, arguments, reference, tmp_path):
    sweep = tmp_path / "sweep"
    overrides = (*arguments, "model.rotary.base=10000,100")
    job = cluster.submit("members", *ONE, "--workdir", sweep, *overrides)
    assert [cluster.wait(f"{job}_{task}") for task in (0, 1)] == ["COMPLETED"] * 2, log_of(sweep)
    assert_same(sweep / "base=10000", reference)
    assert data_state(sweep / "base=100") == data_state(reference)
    assert losses(sweep / "base=100") != losses(reference)


def test_a_job_out_of_time_is_requeued_until_it_is_done(cluster, arguments, reference, tmp_path):
    """Both processes receive the signal that SLURM sends before a limit."""
    run = tmp_path / "run"
    job = cluster.submit("run", "--nodes", 2, *ONE, "--workdir", run, *arguments)
    wait_for_steps(run)
    cluster.ask("scancel", "--batch", "--signal=USR1", job)
    fields = {"JobState": "PENDING", "Restarts": "1"}
    wait_for(lambda: fields.items() <= cluster.shown(job).items(), 90, f"job {job} in the queue")
    time.sleep(2)  # in the same second the nodes would take the new start for the old one
    # It would wait there for two minutes.
    cluster.ask("scontrol", "update", f"JobId={job}", "StartTime=now")
    assert 0 < RunDirectory(run).steps()[-1] < STEPS
    assert cluster.wait(job) == "COMPLETED", log_of(run)
    assert_same(run, reference, exactly=False)
    assert "saved. tpu/slurm/job.sh requeues it after a time limit." in log_of(run)
    assert log_of(run).count("back to the queue") == 1
    assert log_of(run).count("finished. Next: python evaluate.py") == 1
    assert "run the same command again" not in log_of(run)
