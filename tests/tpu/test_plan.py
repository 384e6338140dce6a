"""Shapes and bytes by hand, of small models on small slices."""

import dataclasses

import pytest
from jax.sharding import AbstractMesh, PartitionSpec

from configs import find_config
from experiment import overrides
from experiment.mesh import mesh_sizes
from tpu import memory


def planned(changes, num_devices, num_members=1, config="tiny"):
    config = overrides.apply(find_config(config), changes)
    sizes = mesh_sizes(config, num_members, num_devices)
    mesh = AbstractMesh(tuple(sizes.values()), tuple(sizes))
    return config, sizes, {leaf.name: leaf for leaf in memory.leaves(config, mesh, num_members)}


def test_every_array_of_the_state():
    """tiny: V=512, D=32, L=2, N=2, K=1, H=16, F=64; float32."""
    changes = ["mesh.data=1", "mesh.fsdp=4", "mesh.tensor=2", "model.num_kv_heads=2"]
    _, sizes, arrays_by_name = planned(changes, 8)
    assert sizes == {"sweep": 1, "data": 1, "fsdp": 4, "sequence": 1, "tensor": 2}
    arrays = {  # shape, logical axes, what splits each, bytes on a device
        "blocks.attention.query": ((2, 32, 2, 16), "layers embed heads -", "- fsdp tensor -", 1024),
        "blocks.attention.key": (
            (2, 32, 2, 16),
            "layers embed kv_heads -",
            "- fsdp tensor -",
            1024,
        ),
        "blocks.attention.value": (
            *((2, 32, 2, 16), "layers embed kv_heads -", "- fsdp tensor -", 1024),
        ),
        "blocks.attention.out": ((2, 2, 16, 32), "layers heads - embed", "- tensor - fsdp", 1024),
        "blocks.attention_norm.scale": ((2, 32), "layers -", "- -", 256),
        "blocks.mlp.gate": ((2, 32, 64), "layers embed mlp", "- fsdp tensor", 2048),
        "blocks.mlp.up": ((2, 32, 64), "layers embed mlp", "- fsdp tensor", 2048),
        "blocks.mlp.down": ((2, 64, 32), "layers mlp embed", "- tensor fsdp", 2048),
        "blocks.mlp_norm.scale": ((2, 32), "layers -", "- -", 256),
        "embedding": ((512, 32), "vocab embed", "tensor fsdp", 8192),
        "final_norm.scale": ((32,), "-", "-", 128),
    }
    names = [
        f"{part}.{name}"
        for part in ("params", "opt_state.1.mu", "opt_state.1.nu")
        for name in arrays
    ]
    assert set(arrays_by_name) == {*names, "opt_state.1.count", "skipped"}
    for name in names:
        shape, axes, spec, device_bytes = arrays[name.split("opt_state.1.")[-1].split(".", 1)[1]]
        leaf = arrays_by_name[name]
        assert leaf.shape == shape
        assert " ".join(axis or "-" for axis in leaf.axes) == axes
        assert leaf.spec == PartitionSpec(*(None if a == "-" else a for a in spec.split()))
        assert leaf.device_bytes == device_bytes
    assert arrays_by_name["opt_state.1.count"].device_bytes == 4


@pytest.mark.parametrize("remat", ["full", "qkv", "dots", "none"])
def test_activations_by_hand(remat):
    """512 tokens on a device; a layer's products: q 32, k 16, v 16, gate and up 64 each.

    Between them: rotated q and k 48, attention's output 32, the gated product 64.
    """
    changes = ["mesh.data=2", "mesh.fsdp=1", f"model.remat={remat}", "data.context_length=128"]
    config, sizes, _ = planned(changes, 2)
    estimate = memory.activations(config, sizes, 1)
    dots = 32 + (32 + 16 + 16 + 2 * 64)
    rest = 2 * 32 + (32 + 16 + 16 + 2 * 64) + (48 + 32 + 64)
    saved = {"full": 0, "qkv": 32 + (32 + 16 + 16), "dots": dots, "none": dots + rest}
    assert estimate == {
        f"saved by 2 layers (remat={remat})": 2 * 512 * (32 + saved[remat]) * 4,
        "cosines and sines": 2 * 4 * 2 * 512 * 8,
        # Logits and their gradient are larger than a layer and the gradients of 3 MLP arrays.
        "one layer, or logits": 2 * 4 * 512 * 512,
    }
    assert 512 * (dots + rest + 3 * 64) * 4 < 2 * 4 * 512 * 512
    wide = dataclasses.replace(config, data=dataclasses.replace(config.data, batch_size=16))
    doubled = memory.activations(wide, sizes, 1)
    assert all(doubled[name] == 2 * estimate[name] for name in estimate)
