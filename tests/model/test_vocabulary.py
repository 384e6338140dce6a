"""What travels between eight devices for the embedding and the loss.

tests/training/test_meshes.py compares what they compute with one device.
"""

import json

import pytest

SCRIPT = """
import dataclasses, json, re
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
tokens_BT = targets_BT = np.zeros((B, T), np.int32)


def value(config, embedding_VD, output_VD):
    def look_up(matrix_VD, tokens_BT):
        matrix_VD = vocabulary.gather_features(matrix_VD, config.compute_dtype)
        return vocabulary.look_up(matrix_VD, tokens_BT, config.compute_dtype)

    x_BTD = jnp.sin(3 * vocabulary.map_shards(look_up)(embedding_VD, tokens_BT))
    params = {"embedding": embedding_VD, "output": output_VD}
    return loss.token_nll(config, params, x_BTD, targets_BT).sum()


def find_travels(changes):
    changes = "mesh.data=1", "model.num_heads=4", "model.num_kv_heads=4", *changes
    config = overrides.apply(find_config("tiny"), changes)
    model = dataclasses.replace(config.model, vocab_size=V, embed_dim=D, tie_embeddings=False)
    mesh = make_mesh(config, 1, jax.devices())
    split = NamedSharding(mesh, PartitionSpec("tensor", "fsdp"))
    matrices = [jax.ShapeDtypeStruct((V, D), jnp.float32, sharding=split)] * 2
    with jax.set_mesh(mesh):
        gradient = jax.grad(lambda *args: value(model, *args), (0, 1))
        text = jax.jit(gradient).lower(*matrices).as_text()
    # Of the program that XLA is given; what ends in the type of the result.
    pattern = r'"stablehlo.(all_gather|all_to_all)".*?-> tensor<([0-9a-z]+)>'
    return sorted(re.findall(pattern, text, re.S))


MESHES = "fsdp=8", "fsdp=2 mesh.tensor=4", "fsdp=2 mesh.sequence=2 mesh.tensor=2"
report = {}
for dtype in ("float32", "bfloat16"):
    for mesh in (f"mesh.{axes}" for axes in MESHES):
        changes = f"model.compute_dtype={dtype}", "model.loss_chunk=4", *mesh.split()
        report[f"{dtype} {mesh}"] = find_travels(changes)
print(json.dumps(report))
"""


@pytest.mark.long
def test_matrices_travel_in_the_compute_dtype_and_in_parts(run_script):
    report = json.loads(run_script("-c", SCRIPT).stdout)
    for name, travels in report.items():
        tensor = 4 if "tensor=4" in name else 2 if "tensor=2" in name else 1
        features = 2 if name.endswith("fsdp=8") else 8
        kind = "f32" if name.startswith("float32") else "bf16"
        # 48 x 16, of which each has some ids: gathered for each use, and as much sent going back.
        gathered_shape = f"{48 // tensor}x16x{kind}"
        parts = f"{16 // features}x{48 // tensor}x{features}x{kind}"
        # In the order of their names: all_gather, all_to_all.
        *gathers, first, second = (shape for _, shape in travels)
        assert {*gathers} == {gathered_shape} and (first, second) == (parts, parts), name
