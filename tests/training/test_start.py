"""Starting from another run: each device holds its own part, float32 of what was saved."""

import json

import jax
import ml_dtypes
import numpy as np
import pytest

from ropewalk.experiment.checkpoint import digests
from tests.interop.weights_helpers import PLAIN, make_run, noise

pytestmark = pytest.mark.slow  # starts a process, for its devices

SCRIPT = """
import dataclasses, json, sys
import jax
jax.config.update("jax_num_cpu_devices", 4)
from ropewalk.experiment.checkpoint import digests
from ropewalk.experiment.mesh import make_mesh
from ropewalk.experiment.overrides import Member
from ropewalk.experiment.run import RunDirectory
from ropewalk.model import sharding
from ropewalk.training.restore import starting_params
parent = RunDirectory(sys.argv[1])
mesh = dataclasses.replace(parent.config.mesh, data=1, fsdp=4)
config = dataclasses.replace(parent.config, mesh=mesh, start_from=sys.argv[1])
mesh = make_mesh(config, 1)
member = Member(RunDirectory(sys.argv[1] + "-child"), (), config)
params = starting_params(
    [member], sharding.parameter_shardings(config.model, mesh, members=False)
)
held = [0] * 4
for leaf in jax.tree.leaves(params):
    for shard in leaf.addressable_shards:
        held[shard.device.id] += shard.data.nbytes
print(json.dumps({"digests": digests(params), "held": held}))
"""


@pytest.mark.long
def test_each_device_holds_its_part_of_bfloat16_parameters(tmp_path, run_script):
    make_run(tmp_path / "run", PLAIN, dtype=ml_dtypes.bfloat16)
    report = json.loads(run_script("-c", SCRIPT, tmp_path / "run").stdout.splitlines()[-1])
    rounded = jax.tree.map(lambda x: x.astype(ml_dtypes.bfloat16).astype(np.float32), noise(PLAIN))
    assert report["digests"] == digests(rounded)
    # All but norms' scales, of which every device has a copy.
    split = sum(leaf.nbytes for leaf in jax.tree.leaves(rounded) if leaf.ndim > 2)
    total = sum(leaf.nbytes for leaf in jax.tree.leaves(rounded))
    assert max(report["held"]) == min(report["held"]) <= split / 4 + (total - split)
    assert max(report["held"]) < total / 3
