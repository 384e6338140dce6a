"""The embedding and the loss on eight devices, beside one device; and what travels between them."""

import json

import pytest

pytestmark = pytest.mark.slow

SCRIPT = """
import dataclasses, json, re, sys
import jax
jax.config.update("jax_num_cpu_devices", 8)
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from ropewalk.configs import find_config
from ropewalk.experiment import overrides
from ropewalk.experiment.mesh import make_mesh
from ropewalk.model import loss, sharding, vocabulary

V, D, B, T = 48, 16, 8, 20
random = np.random.default_rng(0)
matrix_VD = random.normal(size=(V, D)).astype(np.float32)
weights_BT = random.normal(size=(B, T)).astype(np.float32)
tokens_BT, targets_BT = random.integers(0, V, size=(2, B, T)).astype(np.int32)


def value(config, embedding_VD, output_VD):
    def look_up(matrix_VD, tokens_BT):
        matrix_VD = vocabulary.gather_features(matrix_VD, config.compute_dtype)
        return vocabulary.look_up(matrix_VD, tokens_BT, config.compute_dtype)

    x_BTD = jnp.sin(3 * vocabulary.map_shards(look_up)(embedding_VD, tokens_BT))
    params = {"embedding": embedding_VD, "output": output_VD}
    scores = loss.token_scores(config, params, x_BTD, targets_BT)
    nll_BT = loss.token_nll(config, params, x_BTD, targets_BT)
    return (nll_BT * weights_BT).sum(), (nll_BT, scores)


def found(mesh_says, *changes):
    says = "mesh.data=1", "model.num_heads=4", "model.num_kv_heads=4", *mesh_says.split()
    config = overrides.apply(find_config("tiny"), [*says, *changes])
    model = dataclasses.replace(config.model, vocab_size=V, embed_dim=D, tie_embeddings=False)
    mesh = make_mesh(config, 1, jax.devices() if mesh_says else jax.devices()[:1])
    split = NamedSharding(mesh, PartitionSpec("tensor", "fsdp"))
    matrices = jax.device_put((matrix_VD, matrix_VD[::-1] / 4), split)
    with jax.set_mesh(mesh):
        gradient = jax.grad(lambda *args: value(model, *args), (0, 1), has_aux=True)
        lowered = jax.jit(gradient).lower(*matrices)
        # Of the program that XLA is given; what ends in the type of the result.
        kinds = "all_gather|all_to_all"
        pattern = rf'"stablehlo.({kinds})".*?-> tensor<([0-9a-z]+)>'
        travels = re.findall(pattern, lowered.as_text(), re.S)
        return jax.device_get(lowered.compile()(*matrices)), sorted(travels)


MESHES = "fsdp=8", "fsdp=2 mesh.tensor=4", "fsdp=2 mesh.sequence=2 mesh.tensor=2"
report = {}
for dtype in ("float32", "bfloat16"):
    for mesh in (f"mesh.{axes}" for axes in MESHES):
        changes = f"model.compute_dtype={dtype}", "model.loss_chunk=4"
        (one, _), (ours, travels) = found("", *changes), found(mesh, *changes)
        errors = jax.tree.map(lambda x, y: float(np.abs(1.0 * x - y).max()), ours, one)
        report[f"{dtype} {mesh}"] = {"error": max(jax.tree.leaves(errors)), "travels": travels}
print(json.dumps(report))
"""


@pytest.mark.long
def test_eight_devices_compute_what_one_does(run_script):
    """Gradients, losses and ranks; and the matrices travel in the compute dtype, in parts."""
    report = json.loads(run_script("-c", SCRIPT).stdout)
    for name, comparison in report.items():
        bits = 32 if name.startswith("float32") else 16
        tensor = 4 if "tensor=4" in name else 2 if "tensor=2" in name else 1
        features = 2 if name.endswith("fsdp=8") else 8
        kind = "f32" if bits == 32 else "bf16"
        assert comparison["error"] < (1e-5 if bits == 32 else 0.1), name
        # 48 x 16, of which each has some ids: gathered for each use, and as much sent going back.
        devices = 16 // features
        gathered_shape = f"{48 // tensor}x16x{kind}"
        parts = f"{devices}x{48 // tensor}x{features}x{kind}"
        # In the order of their names: all_gather, all_to_all.
        *gathers, first, second = (shape for _, shape in comparison["travels"])
        assert {*gathers} == {gathered_shape} and (first, second) == (parts, parts), name
