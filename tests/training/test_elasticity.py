"""Save on some devices and processes, resume on others: `pytest -s` prints the matrix.

Rows must be the same, losses equal up to the order of sums, and all bits equal in the same layout.
"""

import shutil

import numpy as np
import pytest

from experiment.items import read_digests
from experiment.run import RunDirectory
from tests.training.test_processes import Processes, data_state, losses

pytestmark = pytest.mark.long

LAYOUTS = [(1, 1), (1, 2), (1, 4), (1, 8), (2, 1), (2, 2), (2, 4)]  # processes, devices of each
STEPS, SAVED = 6, 3


def train(run, arguments, environment, layout) -> None:
    processes, devices = layout
    flags = f"--xla_force_host_platform_device_count={devices}"
    mesh = ("mesh.data=1", f"mesh.fsdp={processes * devices}")
    started = Processes(
        run.parent / "logs",
        processes,
        {**environment, "XLA_FLAGS": flags},
        *("train.py", *arguments, *mesh, "--workdir", run),
        slurm=processes > 1,
    )
    assert started.exit_statuses(300) == [0] * processes, started.said()


def array_digests(run) -> dict[str, str]:
    return read_digests(RunDirectory(run), STEPS)["arrays"]


def name(layout) -> str:
    processes, devices = layout
    return str(devices) if processes == 1 else f"{processes} x {devices}"


def test_a_run_goes_on_with_any_number_of_devices_and_processes(tiny_data, environment, tmp_path):
    arguments = [*tiny_data, f"train.num_steps={STEPS}", f"train.save_every={SAVED}"]
    arguments = ["tiny", *arguments, "train.keep=9"]
    print(f"| saved on | {' | '.join(map(name, LAYOUTS))} |", "|---" * 8 + "|", sep="\n")
    for saved_on in LAYOUTS:
        train(tmp_path / name(saved_on), arguments, environment, saved_on)
    first = tmp_path / name(LAYOUTS[0])
    for saved_on in LAYOUTS:
        cells = []
        for resumed_on in LAYOUTS:
            whole, run = tmp_path / name(saved_on), tmp_path / "resumed"
            shutil.rmtree(run, ignore_errors=True)
            shutil.copytree(whole, run)
            shutil.rmtree(run / f"checkpoints/{STEPS}")
            train(run, arguments, environment, resumed_on)
            assert data_state(run, STEPS) == data_state(first, STEPS)
            difference = np.max(np.abs(np.divide(losses(run), losses(first)) - 1))
            np.testing.assert_allclose(losses(run), losses(first), rtol=1e-5)
            is_same = array_digests(run) == array_digests(whole) and losses(run) == losses(whole)
            assert is_same or saved_on != resumed_on
            cells.append("=" if is_same else f"{difference:.0e}")
        print(f"| {name(saved_on)} | {' | '.join(cells)} |", flush=True)
