"""Shapes and bytes by hand, of small models on small slices."""

from jax.sharding import AbstractMesh

from configs import find_config
from experiment import overrides
from experiment.mesh import mesh_sizes
from tpu import plan


def test_every_array_of_the_state():
    """tiny: V=512, D=32, L=2, N=2, K=2, H=16, F=64; float32."""
    changes = ["mesh.data=1", "mesh.fsdp=4", "mesh.tensor=2", "model.num_kv_heads=2"]
    config = overrides.apply(find_config("tiny"), changes)
    sizes = mesh_sizes(config, 1, 8)
    assert sizes == {"sweep": 1, "data": 1, "fsdp": 4, "sequence": 1, "tensor": 2}
    mesh = AbstractMesh(tuple(sizes.values()), tuple(sizes))
    actual = {
        leaf.name: (leaf.shape, " ".join(axis or "-" for axis in leaf.spec), leaf.device_bytes)
        for leaf in plan.leaves(config, mesh, 1)
    }
    heads, mlp = ((2, 32, 2, 16), "- fsdp tensor -", 1024), ((2, 32, 64), "- fsdp tensor", 2048)
    arrays = {  # shape, what splits each axis, bytes on a device
        **{f"blocks.attention.{name}": heads for name in ("query", "key", "value")},
        "blocks.attention.out": ((2, 2, 16, 32), "- tensor - fsdp", 1024),
        **{f"blocks.{name}_norm.scale": ((2, 32), "- -", 256) for name in ("attention", "mlp")},
        **{f"blocks.mlp.{name}": mlp for name in ("gate", "up")},
        "blocks.mlp.down": ((2, 64, 32), "- tensor fsdp", 2048),
        "embedding": ((512, 32), "tensor fsdp", 8192),
        "final_norm.scale": ((32,), "-", 128),
    }
    for part in ("params", "opt_state.1.mu", "opt_state.1.nu"):
        assert {name: actual.pop(f"{part}.{name}") for name in arrays} == arrays
    assert actual.keys() == {"opt_state.1.count", "skipped"}
    assert actual["opt_state.1.count"][2] == 4


def test_gradients_of_microbatches_are_added_up(monkeypatch, capsys):
    """34,976 parameters: 12 bytes of state each, two counters; 4 of gradients, or 8."""
    for accumulate, num_bytes in ((1, 8 + 16 * 34_976), (2, 8 + 20 * 34_976)):
        changes = [f"train.accumulate={accumulate}"]
        monkeypatch.setattr("sys.argv", ["plan", "tiny", "--topology", "t4", *changes])
        assert plan.main() == 0
        line = capsys.readouterr().out.splitlines()[-1]
        assert f"{num_bytes / 2**10:.2f} KiB of 13.40 GiB: activations need the rest" in line
