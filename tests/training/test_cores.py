"""Members over the cores of one machine: the numbers of one core, whoever went on from whom."""

import pytest

from ropewalk.experiment.items import read_digests
from ropewalk.experiment.run import RunDirectory
from tests.training.helpers import rows_without_times

pytestmark = pytest.mark.slow

BASES = "model.rotary.base=10,100,1e3,1e4"
SMALL = ("train.num_steps=6", "train.save_every=2", "train.eval_every=3", "train.keep=3")


@pytest.mark.long
def test_any_number_of_cores_trains_to_the_same_bits(run_script, tiny_data, tmp_path):
    """Each member's rows without the timings, and the digests of all its checkpoints."""
    outcomes = []
    for cores in (1, 2, 4):
        command = ["sweep.py", "tiny", "--workdir", tmp_path / f"{cores}", BASES, *SMALL]
        said = run_script(*command, *tiny_data, JAX_NUM_CPU_DEVICES=str(cores)).stderr
        assert (f"over {cores} devices" in said) == (cores > 1)
        runs = [RunDirectory(path) for path in sorted((tmp_path / f"{cores}").glob("base=*"))]
        assert len(runs) == 4
        outcomes += [
            [(rows_without_times(run), [read_digests(run, s) for s in run.steps()]) for run in runs]
        ]
    assert outcomes[0] == outcomes[1] == outcomes[2]


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
