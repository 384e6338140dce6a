"""Ring attention by the kernels of accelerators; training/test_meshes.py has the one of CPUs."""

import functools
import json

import jax
import numpy as np
import pytest

from ropewalk.model.config import NO_WINDOW
from ropewalk.model.kernels import flash, ring, splash
from tests.model.float64_attention import assert_equal, differentiate, in_float64, make_inputs

pytestmark = pytest.mark.long


@pytest.mark.parametrize(
    "kernel, T, window", [(splash, 512, NO_WINDOW), (splash, 300, 70), (flash, 300, 70)]
)
def test_a_ring_of_two_in_float64(kernel, T, window, monkeypatch):
    """Shards of two blocks, each a half; and of 150 tokens, whose halves meet within a block."""
    monkeypatch.setattr(splash, "BLOCK", 128)
    monkeypatch.setattr(kernel, "INTERPRET", True)
    on_device = functools.partial(ring.attention, parts=kernel.PARTS, axis="sequence")
    function = functools.partial(differentiate, on_device)
    # A mapped axis stands for the devices.
    on_both = jax.jit(jax.vmap(function, (*(5 * [1]), None), 1, axis_name="sequence"))
    *arrays, ids_BT = make_inputs(T)
    row = *(x.astype(np.float32) for x in arrays), ids_BT
    shards = (x.reshape(x.shape[0], 2, T // 2, *x.shape[2:]) for x in row)
    ours = (x.reshape(x.shape[0], T, *x.shape[3:]) for x in on_both(*shards, np.int32(window)))
    assert_equal(ours, in_float64(*arrays, ids_BT, window), 1e-6)


SCRIPT = """
import json
import jax, jax.numpy as jnp, numpy as np
from ropewalk.model import loss, sharding, transformer
from ropewalk.model.axes import MESH_AXES
from ropewalk.model.config import ModelConfig
from ropewalk.model.kernels import blocks
from ropewalk.model.rotary.rope import Rope

# Small blocks, for what one block takes does not fall.
blocks.BLOCK_LENGTHS = (64,)
config = ModelConfig(
    vocab_size=32, embed_dim=16, num_layers=4, num_heads=4, num_kv_heads=2, head_dim=8,
    mlp_dim=32, rotary=Rope(base=100.0), loss_chunk=256, remat="full",
)

def total(params, table, tokens_BT, positions_BT, ids_BT):
    hidden_BTD = transformer.hidden(config, params, table, tokens_BT, positions_BT, ids_BT)
    return loss.total_nll(config, params, hidden_BTD, tokens_BT, jnp.ones(tokens_BT.shape), 32768.0)

params, table = transformer.abstract_params(config), config.position_table(128)
row, report = jax.ShapeDtypeStruct((1, 32768), jnp.int32), []
for num_devices in (1, 8):
    shape = [num_devices if axis == "sequence" else 1 for axis in MESH_AXES]
    auto = (jax.sharding.AxisType.Auto,) * len(MESH_AXES)
    mesh = jax.make_mesh(shape, MESH_AXES, auto, devices=jax.devices()[:num_devices])
    with jax.set_mesh(mesh):
        rows = sharding.batch_sharding(mesh)
        where = sharding.parameter_shardings(config, mesh, members=False)
        layouts = dict(in_shardings=(where, None, rows, rows, rows), out_shardings=(None, where))
        step = jax.jit(jax.value_and_grad(total), **layouts)
        compiled = step.lower(params, table, row, row, row).compile()
    gathers = compiled.as_text().count(" all-gather(")
    report.append((compiled.memory_analysis().temp_size_in_bytes, gathers))
print(json.dumps(report))
"""


def test_keys_travel_and_memory_falls_with_the_devices(run_script):
    """A step on eight devices needs about an eighth of the memory on each, and gathers nothing."""
    variables = {"JAX_NUM_CPU_DEVICES": "8", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    lines = run_script("-c", SCRIPT, **variables).stdout.splitlines()
    (bytes_on_1, _), (bytes_on_8, gathers) = json.loads(lines[-1])
    assert bytes_on_8 < 1.25 * bytes_on_1 / 8 and gathers == 0
