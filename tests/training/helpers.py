"""Start runs; read and compare the metrics, rows and arrays that they leave."""

import json
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np

from ropewalk.experiment.checkpoint import restore_params
from ropewalk.experiment.run import RunDirectory
from tests.conftest import ROOT

# XLA compiles the length and the kind of a schedule into a step: tests with one of these changes
# share the programs of `tiny`, for one member and for two.
NINE = ("train.num_steps=9", "train.max_skipped=3")
CONSTANT = ("train.schedule=constant", "train.warmup_steps=0")
# XLA divides the products of `tiny` among cores only if they are larger.
SPLIT = ("model.embed_dim=128", "model.mlp_dim=512")
TIMING = {"seconds", "tokens_per_second", "mfu"}


def rows_without_times(run: RunDirectory | Path) -> list[dict]:
    """Rows of metrics.jsonl without the fields that depend on the clock."""
    path = run if isinstance(run, Path) else run.path
    rows = RunDirectory(path).read_metrics()
    return [{k: v for k, v in row.items() if k not in TIMING} for row in rows]


def losses(run: Path) -> list[float]:
    return [row["loss"] for row in RunDirectory(run).read_metrics()]


def data_state(run: RunDirectory | Path, step: int | None = None) -> dict:
    """The rows that led to a checkpoint, by default the newest."""
    run = RunDirectory(run) if isinstance(run, Path) else run
    return json.loads((run.checkpoints_path / f"{run.find_step(step)}/data/metadata").read_text())


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Processes:
    """Processes of one run, started together; what they say goes to files in `folder`."""

    def __init__(self, folder: Path, number: int, environment, *arguments: object, slurm=False):
        """Several find each other by flags, or with `slurm` by the variables of `srun`."""
        folder.mkdir(exist_ok=True)
        port, self.running, self._logs = str(free_port()), [], []
        for index in range(number):
            flags = f"--coordinator localhost:{port} --num-processes {number} --process-id {index}"
            step = f"JOB_ID=1 STEP_NODELIST=localhost NTASKS={number} PROCID={index}"
            variables = dict(f"SLURM_{x}".split("=") for x in f"{step} LOCALID={index}".split())
            env = environment | ({**variables, "JAX_COORDINATOR_PORT": port} if slurm else {})
            command = [sys.executable, *map(str, arguments)]
            command += [] if slurm or number == 1 else flags.split()
            self._logs.append(folder / f"{time.monotonic_ns()}-{index}")
            with self._logs[-1].open("w") as log:
                self.running.append(
                    subprocess.Popen(command, cwd=ROOT, env=env, stdout=log, stderr=log)
                )

    def wait_for_rows(self, run: Path, rows: int) -> None:
        """Until so many steps are logged, or the first process has ended."""
        metrics = run / "metrics.jsonl"
        while not (metrics.exists() and metrics.read_text().count("\n") >= rows):
            assert self.running[0].poll() is None, self.said()[0]
            time.sleep(0.01)

    def exit_statuses(self, seconds: float) -> list[int]:
        """Exit statuses of all processes, which must end within so many seconds."""
        end = time.monotonic() + seconds
        try:
            return [p.wait(max(0.1, end - time.monotonic())) for p in self.running]
        finally:
            for process in self.running:
                process.kill()

    def said(self) -> list[str]:
        """The log of each process."""
        return [log.read_text(errors="replace") for log in self._logs]


def assert_same_run(first: Path, second: Path) -> None:
    """Bit-identical parameters, metrics, optimizer state and row digest."""
    assert rows_without_times(first) == rows_without_times(second)
    params, step = restore_params(RunDirectory(first))
    other_params, other_step = restore_params(RunDirectory(second))
    assert step == other_step
    jax.tree.map(np.testing.assert_array_equal, params, other_params)
    assert data_state(first) == data_state(second) and data_state(first)["digest"] != 0
