"""tokamax's kernels for Hopper: how they are called, on a CPU, and compiled for an H100.

Pallas' interpreter does not run them (JAX 0.12), so tokamax's plain attention takes their place.
"""

import jax
import jax.numpy as jnp
import pytest

base = pytest.importorskip("tokamax._src.ops.attention.base", reason="make test-gpu installs it")

from ropewalk.model.config import NO_WINDOW  # noqa: E402
from ropewalk.model.kernels import hopper  # noqa: E402
from ropewalk.tpu.topology import find  # noqa: E402
from tests.model.float64_attention import check_kernel, check_members, make_inputs  # noqa: E402
from tests.model.test_flash_compiled import compile_gradient  # noqa: E402

pytestmark = pytest.mark.cuda


@pytest.fixture
def plain(monkeypatch):
    find("h100").compile_devices()  # JAX must load its plug-in without a search for GPUs

    def settings(k_start, is_causal, logits_scale):
        return dict(mask=base.Mask(k_start=k_start, is_causal=is_causal), logits_scale=logits_scale)

    def forward(q, k, v, *, k_start, is_causal, logits_scale, **_):
        given = settings(k_start, is_causal, logits_scale)
        return base.DotProductAttention()(q, k, v, **given, return_residuals=True)

    def backward(q, k, v, residuals, out, dout, *, k_start, is_causal, logits_scale, **_):
        default = jax.lax.DotAlgorithmPreset.DEFAULT
        gradients, _ = base.DotProductAttentionVjp()._fwd(
            residuals, out, dout, q, k, v, **settings(k_start, is_causal, logits_scale),
            precision=(default, default), logits_dtype=jnp.dtype("float32"), dropout_rate=0.0,
            normalize_output=True, return_residuals=False, bias=None, dropout_mask=None,
            logits_soft_cap=None, paging_info=None, q_indices=None, k_indices=None, config=None,
        )  # fmt: skip
        return gradients["q"], gradients["k"], gradients["v"], None

    monkeypatch.setattr(hopper.forward_kernel, "flash_attention_kernel", forward)
    monkeypatch.setattr(hopper.backward_kernel, "flash_attention_vjp_kernel", backward)


def inputs(*sizes: int):
    """Those of the other kernels, without a gradient of the log-sum-exp, which this one lacks."""
    arrays = make_inputs(*sizes)
    arrays[3][..., 0] = 0
    return arrays


@pytest.mark.parametrize("N, K, H, U", [(4, 2, 64, 64), (2, 1, 40, 24)])
def test_documents_and_windows_in_float64(plain, N, K, H, U):
    check_kernel(hopper.attention, inputs(300, N, K, H, U), 70, 1e-6, "float32")


def test_members_with_windows_of_their_own_in_float64(plain):
    check_members(hopper.attention, inputs(77, 4, 2, 40, 24), [NO_WINDOW, 20, 1])


@pytest.mark.parametrize("H, U", [(64, 64), (128, 128), (96, 64)])
def test_it_compiles_for_an_h100_without_a_matrix_of_a_row(H, U):
    memory = compile_gradient("h100", 4000, H, U, "bfloat16", hopper.attention)
    assert memory.temp_size_in_bytes < 4000 * 4000
