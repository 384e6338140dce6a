"""Members over the cores of one machine: the numbers of one core, whoever went on from whom."""

from pathlib import Path

import pytest

from ropewalk.experiment.items import read_digests
from ropewalk.experiment.run import RunDirectory
from tests.in_process import call
from tests.training.helpers import rows_without_times

pytestmark = pytest.mark.slow

BASES = "model.rotary.base=10,100,1e3,1e4"
SMALL = ("train.num_steps=6", "train.save_every=2", "train.eval_every=3", "train.keep=3")


@pytest.fixture(scope="module")
def sweep(run_script, tiny_data):
    """Trains four members on some cores; what is said."""

    def train(workdir: Path, cores: int) -> str:
        command = ["sweep.py", "tiny", "--workdir", workdir, BASES, *SMALL, *tiny_data]
        if cores == 1:  # as this process has
            return call(*command)
        return run_script(*command, JAX_NUM_CPU_DEVICES=str(cores)).stderr

    return train


@pytest.fixture(scope="module")
def on_one_core(sweep, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("cores") / "one"
    assert "over" not in sweep(workdir, cores=1)
    return workdir


def outcome(workdir: Path) -> dict[str, tuple]:
    """Each member's rows without the timings, and the digests of all its checkpoints."""
    runs = [RunDirectory(path) for path in sorted(workdir.glob("base=*"))]
    assert len(runs) == 4
    return {
        run.name: (rows_without_times(run), [read_digests(run, step) for step in run.steps()])
        for run in runs
    }


@pytest.mark.long
@pytest.mark.parametrize("cores", [2, 4])
def test_any_number_of_cores_trains_to_the_same_bits(sweep, on_one_core, tmp_path, cores):
    assert f"over {cores} devices" in sweep(tmp_path / "run", cores)
    assert outcome(tmp_path / "run") == outcome(on_one_core)


SIZES = """
from ropewalk.configs import find_config
from ropewalk.experiment import overrides
from ropewalk.experiment.mesh import make_mesh

for members, given in ((8, []), (6, []), (5, []), (1, []), (4, ["mesh.data=2", "mesh.sweep=2"])):
    print(make_mesh(overrides.apply(find_config("tiny"), given), members).size)
"""


def test_each_core_has_as_many_members_and_a_given_mesh_has_all_devices(run_script):
    done = run_script("-c", SIZES, JAX_NUM_CPU_DEVICES="4")
    assert done.stdout.split() == ["4", "3", "1", "1", "4"]
