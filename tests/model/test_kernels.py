"""Kernels against float64, and which kernel is chosen."""

import sys
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel

from ropewalk.model import axes, kernels
from ropewalk.model.config import NO_WINDOW
from ropewalk.model.kernels import blocks, choice, flash, parts, splash, xla
from tests.model.float64_attention import check_kernel, check_members, make_inputs
from tests.models import small_model


def attend_by_blocks(q_BTNH, k_BSKH, v_BSKU, ids_BT, window):
    return parts.attention(q_BTNH, k_BSKH, v_BSKU, ids_BT, window, parts=blocks.PARTS)


@pytest.mark.parametrize(
    "function, T, unrolled, window, dtype, tolerance",
    [
        (xla.attention, 40, 512, 5, "float32", 1e-6),  # one block
        (xla.attention, 300, 512, 40, "float32", 1e-6),  # three unrolled, the last one short
        (xla.attention, 40, 512, NO_WINDOW, "bfloat16", 0.02),
        (xla.attention, 60, 16, 5, "float32", 1e-6),  # four blocks in turn, the last one short
        (attend_by_blocks, 40, 512, NO_WINDOW, "float32", 1e-6),
        (attend_by_blocks, 40, 512, 9, "float32", 1e-6),
        (xla.reference, 24, 512, 7, "float32", 1e-6),
    ],
)
def test_output_and_gradients_in_float64(
    monkeypatch, function, T, unrolled, window, dtype, tolerance
):
    monkeypatch.setattr(xla, "UNROLLED", unrolled)
    monkeypatch.setattr(blocks, "BLOCK_LENGTHS", (16,))
    check_kernel(function, make_inputs(T), window, tolerance, dtype)


def test_large_logits_do_not_overflow():
    """exp(100) has no float32; the largest logit of a row must come off first."""
    q_BTNH, *inputs = make_inputs(12)
    check_kernel(xla.attention, (40 * q_BTNH, *inputs), NO_WINDOW, 1e-4)


def test_key_blocks_without_a_query_are_skipped():
    """Rows of 16 tokens in blocks of 4: for each block of queries the first and the end."""
    indices_XT = jnp.arange(16).reshape(4, 4)

    def key_ranges(ids, window):
        shard = parts.Shard(indices_XT, jnp.array(ids).reshape(4, 1, 4))
        mask_XY = parts.block_mask(shard, shard, window)
        return [x.tolist() for x in parts.block_ranges(mask_XY)]

    one_document = [1] * 16
    assert key_ranges(one_document, NO_WINDOW) == [[0, 0, 0, 0], [1, 2, 3, 4]]
    # The first query of block 2 is token 8: of two tokens it sees 7, of one only itself.
    assert key_ranges(one_document, 2) == [[0, 0, 1, 2], [1, 2, 3, 4]]
    assert key_ranges(one_document, 1) == [[0, 1, 2, 3], [1, 2, 3, 4]]
    # A document ends with the second block; another within the third.
    assert key_ranges([1] * 8 + [2] * 2 + [3] * 6, NO_WINDOW) == [[0, 0, 2, 2], [1, 2, 3, 4]]


def test_long_rows_never_hold_a_whole_matrix():
    """No value of the gradient has two axes of a row's length."""
    T = 2000
    q, k, v, _, segments = make_inputs(T, B=1)

    def total(q, k, v):
        return xla.attention(q, k, v, segments, NO_WINDOW)[0].sum()

    compiled = jax.jit(jax.grad(total, argnums=(0, 1, 2))).lower(q, k, v).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < T * T * 4


@pytest.mark.slow
def test_members_of_a_sweep_have_windows_of_their_own(monkeypatch):
    """The TPU's kernel as XLA runs it here; it takes other blocks for each member."""
    monkeypatch.setattr(splash, "INTERPRET", True)
    monkeypatch.setattr(splash, "BLOCK", 128)
    check_members(splash.attention, make_inputs(260), [40, NO_WINDOW])


@pytest.mark.parametrize(
    "window, expected",
    [
        (NO_WINDOW, [[], [0], [0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3, 4, 5], list(range(8))]),
        (3, [[], [0], [0, 1, 2], [], [4, 5], []]),
    ],
)
def test_what_splash_lets_a_query_see_of_keys_far_away(window, expected):
    """Keys of two shards, at rows that 16 bits do not hold."""
    keys_S = jnp.array([4, 5, 6, 7, 200_000, 200_001, 200_002, 200_003])
    codes_T = splash._codes(jnp.array([3, 4, 6, 50, 200_001, 1_000_000]), keys_S, window)
    near_TS = np.asarray(splash._near(codes_T[:, None], jnp.arange(8)))
    assert [np.flatnonzero(near_S).tolist() for near_S in near_TS] == expected


class Device(NamedTuple):
    """A stand-in for JAX's `AbstractDevice`, which in jax 0.7 has no platform."""

    device_kind: str
    num_cores: int
    platform: str


def on(platform: str, kind: str = "NVIDIA A100-SXM4-40GB", **sizes: int):
    """The mesh of a device that is not here."""
    device = Device(kind, 1, platform)
    axes = ("sweep", "data", "fsdp", "sequence", "tensor")
    shape = tuple(sizes.get(axis, 1) for axis in axes)
    return jax.sharding.use_abstract_mesh(
        jax.sharding.AbstractMesh(shape, axes, abstract_device=device)
    )


ROW = dict(T=4096, H=64, U=64, dtype="bfloat16")
OLD = "compute capability 8.0 or more, not "


@pytest.mark.parametrize(
    "platform, kind, row, expected, why",
    [
        ("cpu", "cpu", dict(dtype="float32"), "xla", ""),
        ("tpu", "TPU v5", dict(T=65_536, H=192, U=128), "splash", ""),
        ("tpu", "TPU v5", dict(T=131_072), "xla", "mesh.sequence=2"),
        ("gpu", "NVIDIA A100-SXM4-40GB", dict(T=131_072, H=192, U=128), "flash", ""),
        ("cuda", "NVIDIA L4", dict(T=4095, H=60, U=256, dtype="float32"), "flash", ""),
        ("gpu", "NVIDIA L4", dict(dtype="float64"), "xla", "bfloat16, float16, float32, not float"),
        ("gpu", "NVIDIA L4", dict(H=320), "xla", "up to 256 wide, not 320"),
        ("gpu", "NVIDIA RTX 6000 Ada Generation", {}, "flash", ""),
        ("gpu", "Quadro RTX 6000", {}, "xla", f"{OLD}Quadro RTX 6000"),  # before Ampere
        ("gpu", "AMD Instinct MI300X", {}, "xla", f"{OLD}AMD Instinct MI300X"),
    ],
)
def test_the_kernel_for_a_platform(platform, kind, row, expected, why):
    with on(platform, kind):
        choice = kernels.choose(**ROW | row)
    assert choice.name == expected and why in choice.why and bool(why) == bool(choice.why)


def test_a_jax_without_pallas_for_triton_takes_plain_xla(monkeypatch):
    monkeypatch.delattr("ropewalk.model.kernels.flash")
    monkeypatch.setitem(sys.modules, "ropewalk.model.kernels.flash", None)
    with on("gpu"):
        choice = kernels.choose(4096, 64, 64, "bfloat16")
    assert choice.name == "xla" and f"newer JAX than {jax.__version__}" in choice.why


@pytest.mark.parametrize(
    "platform, T, kernel, expected, why",
    [
        ("tpu", 131_072, "auto", splash.PARTS, ""),
        ("tpu", 2**20, "auto", blocks.PARTS, "mesh.sequence=16"),
        ("gpu", 131_072, "auto", flash.PARTS, ""),
        ("gpu", 131_072, "xla", blocks.PARTS, "model.attention=xla"),
    ],
)
def test_rows_split_over_devices_take_the_ring(platform, T, kernel, expected, why):
    with on(platform, sequence=4):
        choice = kernels.choose(T, 64, 64, "bfloat16", kernel)
    assert choice.name == "ring" and choice.attend.keywords["parts"] == expected
    assert why in choice.why and bool(why) == bool(choice.why)


CONFIG = small_model(vocab_size=8, embed_dim=8, num_heads=2, mlp_dim=8)


def test_the_check_names_the_kernel():
    assert kernels.check(CONFIG, 32) == "attention: xla, products in float32"


@pytest.mark.parametrize(
    ("platform", "kind", "expected"),
    [
        ("cpu", "cpu", "float32"),
        ("gpu", "NVIDIA H100 80GB HBM3", "bfloat16"),
        ("cuda", "Tesla T4", "float32"),  # compute capability 7.5
        ("tpu", "TPU v5 lite", "bfloat16"),
    ],
)
def test_products_are_bfloat16_where_the_device_has_it(platform, kind, expected):
    with on(platform, kind):
        assert axes.products_dtype("auto") == expected
        assert axes.products_dtype("float32") == "float32"


@pytest.mark.parametrize(
    "mistake, says",
    [
        (lambda q, k, v, ids, window: xla.reference(q, k, v, 0 * ids, window), "the output"),
        (lambda q, k, v, ids, window: xla.reference(q, k, v, ids, NO_WINDOW), "(window 4 of 32"),
        (
            lambda q, k, v, ids, window: xla.reference(q, jax.lax.stop_gradient(k), v, ids, window),
            "of k",
        ),
    ],
)
def test_the_check_refuses_a_wrong_kernel(monkeypatch, mistake, says):
    """Documents leak; the window is ignored; a gradient is missing."""
    monkeypatch.setattr(xla, "attention", mistake)
    with pytest.raises(ValueError, match="attention kernel 'xla' is wrong on cpu") as error:
        kernels.check(CONFIG, 32)
    assert says in str(error.value) and "\n" not in str(error.value)


def test_a_kernel_that_jax_no_longer_has_is_refused(monkeypatch):
    monkeypatch.delattr(splash_attention_kernel, "_splash_attention_bwd_dq")
    monkeypatch.setattr(splash, "INTERPRET", True)
    tpu = choice.Choice("splash", splash.attention, "tpu")
    monkeypatch.setattr(choice, "choose", lambda *_: tpu)
    says = "'splash' refuses on tpu: AttributeError: .*_bwd_dq.*; set model.attention=xla, and rep"
    with pytest.raises(ValueError, match=says):
        kernels.check(CONFIG, 32)
