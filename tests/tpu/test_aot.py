"""FLOPs, bandwidths and bounds by hand; with libtpu, the real step for real chips."""

import functools
import importlib.util
import json
import math
import shlex
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl
from jax.sharding import AbstractMesh, PartitionSpec

from ropewalk.experiment.checkpoint import leaves_by_name
from ropewalk.experiment.mesh import mesh_sizes
from ropewalk.model.kernels import flash
from ropewalk.tpu import aot, cost, hlo, topology
from ropewalk.tpu.topology import find
from ropewalk.training.members import abstract_state
from tests.in_process import call
from tests.models import tiny_config
from tests.tpu.compiled import run, run_report
from tests.tpu.page import COMPILED

HAS_LIBTPU = importlib.util.find_spec("libtpu") is not None


def needs_libtpu(test):
    """Mark a slow test that runs only where libtpu is installed (the `tpu` extra)."""
    skip = pytest.mark.skipif(not HAS_LIBTPU, reason="needs libtpu (`tpu` extra)")
    return pytest.mark.slow(skip(test))


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


def flops(function, *arguments, num_devices=1):
    return cost.count_flops(jax.make_jaxpr(function)(*arguments).jaxpr, num_devices)


def test_products_count_once_per_execution():
    a, b = jnp.zeros((4, 8)), jnp.zeros((8, 16))
    once = 2 * 4 * 8 * 16
    assert flops(jnp.matmul, a, b) == once
    assert flops(lambda a, b: jax.lax.scan(lambda c, _: (c, a @ b), 0, None, 5), a, b) == 5 * once
    # Forward, and the gradients of both factors.
    assert flops(jax.grad(lambda a, b: (a @ b).sum() ** 2, (0, 1)), a, b) == 3 * once
    # Recomputed once in the backward pass.
    again = jax.checkpoint(lambda a, b: jnp.sin(a @ b).sum())
    assert flops(jax.grad(again, (0, 1)), a, b) == 4 * once
    assert flops(lambda a, b: jax.lax.cond(True, lambda: a @ b, lambda: a @ b), a, b) == once
    batched = jnp.zeros((3, 4, 8)), jnp.zeros((3, 8, 16))
    assert flops(jax.vmap(jnp.matmul), *batched) == 3 * once


def test_a_loop_over_keys_runs_to_the_diagonal():
    """Twelve blocks of keys, of which a query sees half on average."""
    keys, query = jnp.zeros((12, 4, 8)), jnp.zeros((4, 8))

    def add(y, total):
        return total + query @ jax.lax.dynamic_index_in_dim(keys, y, keepdims=False).T

    def attend(end):
        return jax.lax.fori_loop(0, end, add, jnp.zeros((4, 4)))

    jaxpr = jax.make_jaxpr(attend)(5).jaxpr
    assert cost.causal_trips(jaxpr) == 6
    assert cost.count_flops(jaxpr, 1, 6) == 6 * 2 * 4 * 4 * 8


def test_flash_attention_counts_pairs_on_and_below_the_diagonal():
    """Two heads of 64 over 256 tokens in blocks of 64 keys: 256 x 320 / 2 pairs, two products."""
    q, k = jnp.zeros((1, 256, 2, 64), jnp.bfloat16), jnp.zeros((1, 256, 1, 64), jnp.bfloat16)
    attend = functools.partial(flash.attention, segment_ids_BT=jnp.ones((1, 256)), window=9)
    assert flops(attend, q, k, k) == 2 * (256 * 320 // 2) * 2 * 2 * 64


def test_the_inside_of_a_shard_map_runs_on_every_device():
    mesh, whole, a = jax.make_mesh((1,), ("x",)), PartitionSpec(), jnp.zeros((4, 4))
    product = jax.shard_map(jnp.matmul, mesh=mesh, in_specs=(whole, whole), out_specs=whole)
    assert flops(product, a, a, num_devices=8) == 8 * 2 * 4**3


# Queries and keys in blocks of 512: those on the diagonal and below it, or of two devices, which
# take two turns each, a quarter of 36.
@pytest.mark.parametrize(("T", "shards", "blocks"), [(4096, 1, 36), (2048, 2, 9)])
def test_splash_attention_takes_the_blocks_up_to_the_diagonal(T, shards, blocks):
    def kernel(q, k, out):
        out[...] = q[...] @ k[...].T

    product = pl.pallas_call(
        kernel,
        grid=(T // 512, T // 512),
        in_specs=[pl.BlockSpec((512, 128), lambda t, s, i=i: ((t, s)[i], 0)) for i in (0, 1)],
        out_specs=pl.BlockSpec((512, 512), lambda t, s: (t, s)),
        out_shape=jax.ShapeDtypeStruct((T, T), jnp.float32),
    )
    jaxpr = jax.make_jaxpr(product)(*2 * [jnp.zeros((T, 128))]).jaxpr
    assert cost.count_flops(jaxpr, 1, shards=shards) == blocks * 2 * 512 * 512 * 128


@pytest.mark.parametrize(
    ("name", "group", "links"),
    [
        ("v5e:8x8", 64, 2),  # two dimensions that do not close
        ("v5p:4x4x4", 64, 6),
        ("v5p:4x4x4", 8, 3),  # of the second dimension half, which is no ring
        ("tpu7x:4x4x4", 8, 2),  # two devices per chip: four chips of a side, all of it
        ("tpu7x:2x2x1", 2, 6),  # within a chip
    ],
)
def test_bandwidth_of_a_group(name, group, links):
    chips = find(name)
    collective = hlo.Collective("all-gather", count=1, num_bytes=group * 10**9, group=group)
    seconds = (group - 1) * 1e9 / (links * chips.chip.link_bandwidth)
    assert chips.transfer_seconds(collective) == pytest.approx(seconds)


def test_least_traffic_of_fsdp():
    """tiny in bfloat16 over 4 chips: per microbatch two gathers and a scatter of 34,816 numbers.

    512 x 32 of the embedding, and in each of two layers 9,216 of matrices: what `fsdp` splits.
    """
    changes = ["mesh.data=1", "mesh.fsdp=4", "model.compute_dtype=bfloat16", "train.accumulate=2"]
    config = tiny_config(*changes)
    mesh = AbstractMesh((1, 1, 4, 1, 1), ("sweep", "data", "fsdp", "sequence", "tensor"))
    params = abstract_state(config, 1, mesh).params  # pyright: ignore[reportArgumentType]
    received = 2 * (512 * 32 + 2 * 9216) * 2 * 3 / 4
    bound = cost.least_traffic(config, mesh, params)  # pyright: ignore[reportArgumentType]
    assert bound == {"all-gather": 2 * received, "reduce-scatter": received}


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
def test_a_chip_is_one_device():
    sizes = "len(topology.find(name).compile_devices())"
    names = ["v4:2x2x1", "v5e:2x2", "v5p:2x2x1", "v6e:2x2"]
    code = f"from ropewalk.tpu import topology; print(*({sizes} for name in {names}))"
    assert run_code(code) == ["4"] * 4


@needs_libtpu
def test_a_whole_cube_gathers():
    """Without `wrap`, libtpu adds up mostly empty arrays over all 64 chips."""
    values = run_report(
        *("tiny", "--topology", "v5p:4x4x4", "mesh.data=1", "mesh.fsdp=64", "model.embed_dim=128"),
        *("data.batch_size=64", "data.context_length=128", "model.compute_dtype=bfloat16"),
        "model.mlp_dim=512",
    )
    received = sum(c.wire_bytes for c in values.collectives if c.kind == "all-gather")
    assert received > 0.8 * values.bound["all-gather"]


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
    values = cost.Report(**json.loads(printed.splitlines()[-1]))
    assert values.problem is None
    assert values.attention == "attention: xla"
    # 34,976 parameters and two moments of each in float32; 8 x 64 tokens' four integers and mask.
    state_and_batch = 3 * 4 * 34_976 + 5 * 4 * 8 * 64
    assert 0 <= values.arguments - state_and_batch < 1000  # frequencies, counters, learning rate
    assert values.seconds["compute"] == values.flops / 197e12
    assert values.collectives == [] and values.seconds["network"] == 0
    assert values.peak >= values.arguments
    assert (values.tokens, values.steps) == (8 * 64, 20)
