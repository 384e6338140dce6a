"""Shapes and bytes by hand, of small models on small slices."""

from jax.sharding import AbstractMesh, PartitionSpec

from configs import find_config
from experiment import overrides
from experiment.mesh import mesh_sizes
from tpu import memory, plan


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


def test_gradients_of_microbatches_are_added_up(monkeypatch, capsys):
    """34,976 parameters: 12 bytes of state each, two counters; 4 of gradients, or 8."""
    for accumulate, num_bytes in ((1, 8 + 16 * 34_976), (2, 8 + 20 * 34_976)):
        changes = [f"train.accumulate={accumulate}"]
        monkeypatch.setattr("sys.argv", ["plan", "tiny", "--topology", "t4", *changes])
        assert plan.main() == 0
        line = capsys.readouterr().out.splitlines()[-1]
        assert f"{num_bytes / 2**10:.2f} KiB of 13.40 GiB: activations need the rest" in line
