"""Attention and its gradients in float64, by the formulas of softmax: the oracle of all kernels."""

import functools

import jax
import jax.numpy as jnp
import numpy as np


def make_inputs(T: int, N: int = 4, K: int = 2, H: int = 16, U: int = 8, B: int = 2):
    """Scaled queries, keys, values, a gradient of the output, and ids of packed documents.

    By default two queries share a key, and values are narrower than keys, as in MLA.
    """
    random = np.random.default_rng(T + H)
    q_BTNH, k_BSKH, v_BSKU, g_BTNU = (
        random.normal(size=(B, T, heads, width))
        for heads, width in ((N, H), (K, H), (K, U), (N, U))
    )
    ids_BT = np.sort(random.integers(1, 4, size=(B, T)), axis=1).astype(np.int32)
    ids_BT[:, -T // 8 :] = 0  # padding
    return q_BTNH / np.sqrt(H), k_BSKH, v_BSKU, g_BTNU, ids_BT


def in_float64(q_BTNH, k_BSKH, v_BSKU, g_BTNU, ids_BT, window) -> list[np.ndarray]:
    """The output, the log-sum-exp, and the gradients, as of `differentiate`."""
    B, T, N, H = q_BTNH.shape
    K = k_BSKH.shape[2]
    q_BTKGH, g_BTKGU = (x.reshape(B, T, K, N // K, -1) for x in (q_BTNH, g_BTNU))
    distance_TS = np.arange(T)[:, None] - np.arange(T)
    mask_BTS = (ids_BT[:, :, None] == ids_BT[:, None]) & (distance_TS >= 0)
    mask_BTS &= distance_TS < window
    logits_BKGTS = np.einsum("BTKGH,BSKH->BKGTS", q_BTKGH, k_BSKH)
    logits_BKGTS = np.where(mask_BTS[:, None, None], logits_BKGTS, -np.inf)
    top_BKGT1 = logits_BKGTS.max(-1, keepdims=True)
    weights_BKGTS = np.exp(logits_BKGTS - top_BKGT1)
    total_BKGT1 = weights_BKGTS.sum(-1, keepdims=True)
    weights_BKGTS /= total_BKGT1
    lse_BKGT = (top_BKGT1 + np.log(total_BKGT1))[..., 0]
    out_BTKGU = np.einsum("BKGTS,BSKU->BTKGU", weights_BKGTS, v_BSKU)
    dweights_BKGTS = np.einsum("BTKGU,BSKU->BKGTS", g_BTKGU, v_BSKU)
    mean_BKGT1 = (weights_BKGTS * dweights_BKGTS).sum(-1, keepdims=True)
    g_BKGT1 = np.moveaxis(g_BTKGU[..., :1], 1, 3)
    dlogits_BKGTS = weights_BKGTS * (dweights_BKGTS - mean_BKGT1 + g_BKGT1)
    return [
        out_BTKGU.reshape(B, T, N, -1),
        np.moveaxis(lse_BKGT, 3, 1).reshape(B, T, N),
        np.einsum("BKGTS,BSKH->BTKGH", dlogits_BKGTS, k_BSKH).reshape(B, T, N, H),
        np.einsum("BKGTS,BTKGH->BSKH", dlogits_BKGTS, q_BTKGH),
        np.einsum("BKGTS,BTKGU->BSKU", weights_BKGTS, g_BTKGU),
    ]


def differentiate(attend, q, k, v, g, ids, window) -> list[jax.Array]:
    """The output of a kernel, its log-sum-exp, and the gradients of q, k and v under both.

    The gradient of the log-sum-exp is the first feature of the output's.
    """
    outputs, gradients = jax.vjp(lambda *qkv: attend(*qkv, ids, window), q, k, v)
    return [*outputs, *gradients((g, g[..., 0].astype(outputs[1].dtype)))]


def assert_equal(ours, exact, tolerance: float):
    """Compare arrays by their norms; one that is 0 by the largest norm."""
    norms = list(map(np.linalg.norm, exact))
    for x, y, norm in zip(ours, exact, norms, strict=True):
        # The gradient of q is 0 in a window of one token.
        scale = norm if norm > 1 else max(norms)
        assert np.linalg.norm(np.asarray(x, np.float64) - y) < tolerance * scale


def check_members(attend, inputs, windows):
    """Compare members of a sweep, each with a window of its own, with float64."""
    *arrays, ids = inputs
    function = functools.partial(differentiate, attend)
    members = jax.jit(jax.vmap(function, in_axes=(*(5 * [None]), 0)))
    ours = members(*(jnp.asarray(x, jnp.float32) for x in arrays), ids, np.array(windows, np.int32))
    for member, window in enumerate(windows):
        assert_equal([x[member] for x in ours], in_float64(*arrays, ids, window), 1e-6)


def check_kernel(attend, inputs, window, tolerance=1e-6, dtype="float32"):
    """Compare output and gradients of a kernel with float64; a window is traced."""
    *arrays, ids = inputs
    q, k, v, g = (jnp.asarray(x, dtype) for x in arrays)
    ours = jax.jit(functools.partial(differentiate, attend))(q, k, v, g, ids, np.int32(window))
    assert [x.dtype for x in ours] == [dtype, "float32", *[dtype] * 3]
    q, k, v, g = (np.asarray(x, np.float64) for x in (q, k, v, g))
    assert_equal(ours, in_float64(q, k, v, g, ids, window), tolerance)
