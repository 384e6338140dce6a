"""Ring attention by the kernels of accelerators; training/test_meshes.py has the one of CPUs."""

import json

import pytest

SCRIPT = """
import functools, json
import jax, jax.numpy as jnp, numpy as np
from ropewalk.model import loss, sharding, transformer
from ropewalk.model.axes import MESH_AXES
from ropewalk.model.config import ModelConfig
from ropewalk.model.kernels import blocks, choice, flash, ring, splash, xla
from ropewalk.model.rotary.rope import Rope

def mesh(**sizes):
    shape = tuple(sizes.get(axis, 1) for axis in MESH_AXES)
    auto = (jax.sharding.AxisType.Auto,) * len(MESH_AXES)
    return jax.make_mesh(shape, MESH_AXES, auto, devices=jax.devices()[:np.prod(shape)])

def error(ours, expected):
    pairs = zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True)
    # Weights that nothing reaches have a gradient of rounding: sizes count from 1e-3.
    scale = lambda y: max(np.abs(y).max(), 1e-3)
    return max(float(np.abs(np.asarray(x) - np.asarray(y)).max() / scale(y)) for x, y in pairs)

random = np.random.default_rng(0)
B, report = 2, {}

# Attention alone: packed documents, a window, values narrower than keys, fewer key heads.
def inputs(T):
    q, k, v, g = (
        random.normal(size=(B, T, heads, width)).astype(np.float32)
        for heads, width in ((4, 16), (2, 16), (2, 8), (4, 8))
    )
    return q, k, v, np.sort(random.integers(1, 4, size=(B, T)), axis=1).astype(np.int32), g

def results(attend, row, window):
    def total(q, k, v):
        out = attend(q, k, v, ids, window)
        return (out * g).sum(), out
    q, k, v, ids, g = (jnp.asarray(x) for x in row)
    return jax.jit(jax.value_and_grad(total, argnums=(0, 1, 2), has_aux=True))(q, k, v)

def ring_of(parts):
    attend = functools.partial(ring.attention, parts=parts, axis="sequence")
    return lambda *row: choice.map_devices(choice.Choice("ring", attend, "cpu"))(*row)

# The kernels of accelerators are interpreted: shards of two blocks, each a half; and of 150
# tokens, whose halves meet within a block.
splash.INTERPRET, splash.BLOCK, flash.INTERPRET = True, 128, True
for kernel, T, window, tensor in (
    (splash, 512, 2**31 - 1, 1),
    (splash, 300, 70, 2),
    (flash, 300, 70, 2),
):
    row = inputs(T)
    expected = results(xla.reference, row, window)
    with jax.set_mesh(mesh(sequence=2, tensor=tensor)):
        ours = results(ring_of(kernel.PARTS), row, jnp.int32(window))
    report[f"{kernel.__name__} {T}"] = error(ours, expected)

# Memory of a step, and what it gathers, compiled only. Small blocks, for what one block takes does
# not fall.
config = ModelConfig(
    vocab_size=32, embed_dim=16, num_layers=4, num_heads=4, num_kv_heads=2, head_dim=8,
    mlp_dim=32, rotary=Rope(base=100.0), loss_chunk=256, remat="full",
)

def step(config):
    def total(params, table, tokens_BT, positions_BT, ids_BT):
        rows = (tokens_BT, positions_BT, ids_BT)
        hidden_BTD = transformer.hidden(config, params, table, *rows)
        return loss.token_nll(config, params, hidden_BTD, tokens_BT).mean()
    return jax.value_and_grad(total)

blocks.BLOCK_LENGTHS = (64,)
params, table = transformer.abstract_params(config), config.position_table(128)
row = jax.ShapeDtypeStruct((1, 32768), jnp.int32)
for num_devices in (1, 8):
    with jax.set_mesh(devices := mesh(sequence=num_devices)):
        rows = sharding.batch_sharding(devices)
        where = sharding.parameter_shardings(config, devices, members=False)
        run = jax.jit(
            step(config), in_shardings=(where, None, rows, rows, rows), out_shardings=(None, where)
        )
        compiled = run.lower(params, table, row, row, row).compile()
        report[f"bytes on {num_devices}"] = compiled.memory_analysis().temp_size_in_bytes
        report[f"gathers on {num_devices}"] = compiled.as_text().count(" all-gather(")
print(json.dumps(report))
"""


@pytest.mark.long
def test_a_ring_equals_one_device_and_gathers_nothing(run_script):
    """Outputs and all gradients; keys travel, and memory is an eighth of one device's, or nearly.

    Packed documents, windows, grouped heads.
    """
    variables = {"JAX_NUM_CPU_DEVICES": "8", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    report = json.loads(run_script("-c", SCRIPT, **variables).stdout.splitlines()[-1])
    errors = {name: x for name, x in report.items() if isinstance(x, float)}
    assert len(errors) == 3
    assert {name: x for name, x in errors.items() if not x < 1e-5} == {}
    assert report["bytes on 8"] < 1.25 * report["bytes on 1"] / 8
    assert report["gathers on 8"] == 0
