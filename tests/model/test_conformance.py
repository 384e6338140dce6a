"""Attention by the kernel of this device beside plain attention in float32, on packed rows.

`model.kernels.check` compares one kernel before training; this compares more shapes, and judges an
error by that of plain attention in bfloat16. On a GPU:

    JAX_DISABLE_MOST_OPTIMIZATIONS=0 python -m pytest tests/model/test_conformance.py
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropewalk.model import kernels
from ropewalk.model.config import NO_WINDOW
from ropewalk.model.kernels import xla
from ropewalk.model.kernels.conformance import differentiate, relative_errors

FACTOR = 2.0  # another order of sums may double bfloat16's own error
T = 1024


def compare(attend, T, N=8, K=8, H=64, U=64, windows=(NO_WINDOW,)):
    """The largest relative errors of a kernel and of plain attention in bfloat16, by array.

    Each window is that of a member of a sweep, with inputs of its own.
    """
    random = np.random.default_rng(0)
    ids_BT = np.sort(random.integers(1, 6, size=(2, T)), axis=1).astype(np.int32)
    q_MBTNH, k_MBSKH, v_MBSKU, weights_MBTNU = (
        jnp.asarray(random.normal(size=(len(windows), 2, T, *shape)), jnp.bfloat16)
        for shape in ((N, H), (K, H), (K, U), (N, U))
    )
    q_MBTNH /= np.sqrt(H).astype(jnp.bfloat16)
    arrays = q_MBTNH, k_MBSKH, v_MBSKU, weights_MBTNU, np.array(windows, np.int32)

    def results(function):
        members = jax.jit(jax.vmap(functools.partial(differentiate, function, ids_BT)))
        return members(*arrays)

    with jax.default_matmul_precision("highest"):
        exact = results(xla.reference)
    errors = [relative_errors(results(function), exact) for function in (attend, xla.attention)]
    return tuple(max(map(float, numbers)) for numbers in errors)


@pytest.mark.skipif(jax.default_backend() == "cpu", reason="XLA would be compared with itself")
@pytest.mark.parametrize(
    ("T", "sizes"),
    [
        (T, {}),
        (T, dict(K=2, H=128, U=128)),
        (T, dict(windows=[T // 8])),
        (T - 1, {}),
        (T, dict(H=96, U=64)),  # MLA's widths
        (T, dict(H=192, U=128)),  # as DeepSeek's
        (T, dict(windows=[NO_WINDOW, T // 8, T // 3])),  # members of a sweep
    ],
    ids=["documents", "shared keys", "window", "odd length", "MLA", "DeepSeek", "members"],
)
def test_the_kernel_of_this_device_conforms(T, sizes):
    kernel = kernels.choose(T, sizes.get("H", 64), sizes.get("U", 64), jnp.bfloat16)
    error, plain = compare(kernel.attend, T, **sizes)
    assert error < FACTOR * plain, kernel.describe()


def test_attention_across_documents_is_detected():
    def leaking(q_BTNH, k_BSKH, v_BSKU, ids_BT, window):
        return xla.reference(q_BTNH, k_BSKH, v_BSKU, 0 * ids_BT, window)

    error, plain = compare(leaking, 32, N=2, K=1, H=8, U=8)
    assert plain < 0.02 and error > FACTOR * plain
