"""Shardings and reports by hand; with libtpu, the real step for real chips."""

import importlib.util
import json
import math
import shlex
import subprocess
import sys

import jax
import pytest
from jax.sharding import AbstractMesh

from ropewalk.experiment.checkpoint import leaves_by_name
from ropewalk.experiment.mesh import mesh_sizes
from ropewalk.tpu import aot, compiled, hlo, topology
from ropewalk.training.members import abstract_state
from tests.in_process import call
from tests.models import tiny_config
from tests.tpu.compiled import run, run_report
from tests.tpu.page import COMPILED

HAS_LIBTPU = importlib.util.find_spec("libtpu") is not None


def needs_libtpu(test):
    """Mark a test that runs only where libtpu is installed (the `tpu` extra)."""
    skip = pytest.mark.skipif(not HAS_LIBTPU, reason="needs libtpu: make test-tpu")
    return pytest.mark.libtpu(skip(test))


def test_every_array_of_the_parameters():
    """tiny: V=512, D=32, L=2, N=2, K=2, H=16, F=64; float32. Moments are split as these are."""
    changes = ["mesh.data=1", "mesh.fsdp=4", "mesh.tensor=2", "model.num_kv_heads=2"]
    config = tiny_config(*changes)
    sizes = mesh_sizes(config, 1, 8)
    mesh = AbstractMesh(tuple(sizes.values()), tuple(sizes))
    params = abstract_state(config, 1, mesh).params  # pyright: ignore[reportArgumentType]
    heads, mlp = ((2, 32, 2, 16), "- fsdp tensor -", 1024), ((2, 32, 64), "- fsdp tensor", 2048)
    assert {
        name: (
            leaf.shape,
            " ".join(axis or "-" for axis in leaf.sharding.spec),
            math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize,
        )
        for name, leaf in leaves_by_name(params).items()
    } == {  # shape, what splits each axis, bytes on a device
        **{f"blocks.attention.{name}": heads for name in ("query", "key", "value")},
        "blocks.attention.out": ((2, 2, 16, 32), "- tensor - fsdp", 1024),
        **{f"blocks.{name}_norm.scale": ((2, 32), "- -", 256) for name in ("attention", "mlp")},
        **{f"blocks.mlp.{name}": mlp for name in ("gate", "up")},
        "blocks.mlp.down": ((2, 64, 32), "- tensor fsdp", 2048),
        "embedding": ((512, 32), "tensor fsdp", 8192),
        "final_norm.scale": ((32,), "-", 128),
    }


@pytest.mark.parametrize("command", COMPILED)
def test_commands_of_the_page_are_accepted(command, monkeypatch):
    monkeypatch.setattr("sys.argv", ["tpu.aot", *shlex.split(command)])
    _, chips, _ = aot.parse(aot.command_line())
    assert chips.num_chips in (16, 64)


def test_libtpu_of_another_jax_is_refused(monkeypatch):
    """It ends in a crash of its plug-in otherwise: libtpu 0.0.42 with JAX 0.12, on Python 3.12."""
    monkeypatch.setattr(topology, "version", lambda name: "0.0.17")
    with pytest.raises(ValueError, match=r"needs libtpu 0\.0\.\d+\.\*, and 0\.0\.17 is installed"):
        topology._check_libtpu()


@needs_libtpu
def test_a_step_that_does_not_fit_is_refused():
    """4 billion activations a layer of 67 million tokens, on a chip of 16 GB."""
    done = run("tiny", "--topology", "v5e:1x1", "data.batch_size=1048576")
    assert done.returncode == 1
    assert "does not fit: RESOURCE_EXHAUSTED" in done.stdout


def run_code(code: str) -> list[str]:
    """Return the words that a process prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@needs_libtpu
def test_a_whole_cube_gathers():
    """Without `wrap`, libtpu adds up mostly empty arrays over all 64 chips."""
    values = run_report(
        *("tiny", "--topology", "v5p:4x4x4", "mesh.data=1", "mesh.fsdp=64", "model.embed_dim=128"),
        *("data.batch_size=64", "data.context_length=128", "model.compute_dtype=bfloat16"),
        "model.mlp_dim=512",
    )
    received = sum(c.received for c in values.collectives if c.kind == "all-gather")
    # Two gathers, in bfloat16, of 512 x 128 of the embedding and of the matrices of two layers.
    matrices = 128 * (2 * 2 * 16 + 2 * 16 + 3 * 512)
    assert received > 0.8 * 2 * 2 * (512 * 128 + 2 * matrices) * 63 / 64


@needs_libtpu
def test_no_array_is_gathered_twice():
    """One gather per layer, pass and matrix (q, k, v, out, gate, up, down), one of the embedding.

    The embedding's gradient is exchanged twice, each chip receiving its shard in bfloat16.
    """
    collectives = run_report(
        *("tiny", "--topology", "v5e:2x2", "mesh.data=1", "mesh.fsdp=4", "data.context_length=128"),
        *("model.compute_dtype=bfloat16", "model.remat=full"),
    ).collectives
    kinds = {kind: [c for c in collectives if c.kind == kind] for kind in hlo.KINDS}
    assert sum(c.count for c in kinds["all-gather"]) == 2 * 2 * 7 + 1
    matrix = 512 * 32
    sent = [(c.count, c.num_bytes) for c in kinds["all-to-all"]]
    assert sent == [(1, 2 * matrix), (1, 2 * matrix)]
    assert all(c.num_bytes < 2 * matrix for c in kinds["all-reduce"])


PRODUCT = """
import jax, jax.numpy as jnp, re
from jax.sharding import NamedSharding, PartitionSpec
from ropewalk.tpu import topology
from ropewalk.training.programs import program
devices = topology.find("v5e:4x4").compile_devices()
split = NamedSharding(jax.make_mesh((16,), ("x",), devices=devices), PartitionSpec("x"))
x, w = (jax.ShapeDtypeStruct((n, 4096), jnp.bfloat16, sharding=split) for n in (8192, 4096))
product = program(lambda: jnp.matmul, out_shardings=split, device_kind=KIND)
text = product.lower(x, w).compile().as_text()
print(*sorted(set(re.findall("all-gather|collective-permute", text))))
"""


@needs_libtpu
@pytest.mark.parametrize(
    ("kind", "moved"), [("", "collective-permute"), ("TPU v5 lite", "all-gather")]
)
def test_weights_are_gathered_before_products(kind, moved):
    """A windowed einsum would pass parts of a weight round all chips, with a product for each."""
    assert run_code(PRODUCT.replace("KIND", repr(kind))) == [moved]


@needs_libtpu
def test_tensor_also_splits_the_residual_stream():
    """Each half of a block gathers its tokens and scatters its output: forward, backward, and when
    it is recomputed (except for the last sum of a block)."""
    collectives = run_report(
        *("tiny", "--topology", "v5p:2x2x1", "mesh.data=1", "mesh.tensor=4", "model.num_heads=4"),
        *("model.num_kv_heads=4", "data.context_length=128", "model.compute_dtype=bfloat16"),
        "model.remat=full",
    ).collectives
    stream = 8 * 128 * 32 * 2
    counts = {
        kind: sum(c.count for c in collectives if (c.kind, c.num_bytes) == (kind, stream))
        for kind in hlo.KINDS
    }
    # Two layers; before them the embeddings are added up over `tensor`, and after them the loss
    # gathers all tokens.
    gathers, scatters = 2 * (2 + 2 + 2) + 2, 2 * (2 + 2 + 1) + 1
    assert counts == dict(zip(hlo.KINDS, (gathers, scatters, 1, 0, 0), strict=True))


@needs_libtpu
def test_kv_shards_are_permuted_round_the_ring():
    """Two devices a row: keys, values, positions move in two layers, and back as gradients."""
    collectives = run_report(
        *("tiny", "--topology", "v5e:2x2", "mesh.data=1", "mesh.fsdp=2", "mesh.sequence=2"),
        *("data.context_length=256", "model.compute_dtype=bfloat16"),
    ).collectives
    permutes = (c.count for c in collectives if c.kind == "collective-permute")
    assert sum(permutes) >= 2 * (2 + 2 + 2)


def test_the_report_of_a_cpu(monkeypatch):
    """The step is traced, compiled and read as with libtpu, here for this machine's CPU."""
    monkeypatch.setattr(topology.Topology, "compile_devices", lambda chips: jax.devices("cpu")[:1])
    printed = call("-m", "tpu.aot", "tiny", "--topology", "v5e:1x1", "--json")
    values = compiled.Report(**json.loads(printed.splitlines()[-1]))
    assert values.problem is None
    assert values.attention == "attention: xla"
    # 34,976 parameters and two moments of each in float32; 8 x 64 tokens' four integers and mask.
    state_and_batch = 3 * 4 * 34_976 + 5 * 4 * 8 * 64
    assert 0 <= values.arguments - state_and_batch < 1000  # frequencies, counters, learning rate
    assert values.collectives == [] and values.peak >= values.arguments
