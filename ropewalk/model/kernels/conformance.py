"""Comparison of the chosen kernel with the reference, on these devices, before training."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from ropewalk.model import axes
from ropewalk.model.axes import devices_along
from ropewalk.model.config import NO_WINDOW, Architecture
from ropewalk.model.kernels import choice, xla


def differentiate(
    attend: Callable, ids_BT, q_BTNH, k_BSKH, v_BSKU, weights_BTNU, window
) -> list[jax.Array]:
    """Return the output, and the gradients of q, k and v under a weighted sum, in float32."""

    def total(q_BTNH, k_BSKH, v_BSKU):
        out_BTNU = attend(q_BTNH, k_BSKH, v_BSKU, ids_BT, window)[0].astype(jnp.float32)
        return jnp.sum(out_BTNU * weights_BTNU), out_BTNU

    gradient = jax.grad(total, argnums=(0, 1, 2), has_aux=True)
    gradients, out_BTNU = gradient(q_BTNH, k_BSKH, v_BSKU)
    return [out_BTNU, *(x.astype(jnp.float32) for x in gradients)]


def relative_errors(arrays: Sequence, exact: Sequence) -> list[jax.Array]:
    """Return the norm of each array's error over the norm of the exact array."""
    pairs = zip(arrays, exact, strict=True)
    return [jnp.linalg.norm(x - y) / jnp.linalg.norm(y) for x, y in pairs]


def check(config: Architecture, context_length: int) -> str:
    """Compare the kernel of a model with plain attention on small packed rows.

    Outputs and gradients are compared, with and without a window, under the current mesh.

    Args:
      config: heads and dtype are read.
      context_length: tokens of a row.

    Returns:
      A line that names the kernel, the reason that a faster one does not apply, and the dtype.

    Raises:
      ValueError: if they differ by more than rounding, or the kernel does not support the heads.
    """
    chosen = choice.choose_for_model(config, context_length)
    if config.masked_distances is not None:
        return chosen.describe()
    N, K, H, U = config.num_heads, config.kv_heads, config.head_dim, config.value_dim
    dtype = jnp.dtype(axes.products_dtype(config.compute_dtype))
    num_cuts = devices_along("data") * devices_along("fsdp")
    halves = 2 * devices_along("sequence")
    B, T = num_cuts, min(context_length, halves * -(-256 // halves))
    random = np.random.default_rng(0)

    def normal(*shape):
        return random.normal(size=shape).astype(dtype)

    q_BTNH, k_BSKH = normal(B, T, N, H) / np.sqrt(H).astype(dtype), normal(B, T, K, H)
    v_BSKU, weights_BTNU = normal(B, T, K, U), normal(B, T, N, U)
    ids_BT = np.sort(random.integers(1, 4, size=(B, T)), axis=1).astype(np.int32)

    @jax.jit
    def errors(q_BTNH, k_BSKH, v_BSKU, ids_BT, weights_BTNU, window):
        inputs = ids_BT, q_BTNH, k_BSKH, v_BSKU, weights_BTNU, window
        by_kernel = differentiate(choice.map_devices(chosen), *inputs)
        return relative_errors(by_kernel, differentiate(xla.reference, *inputs))

    plain = chosen.platform == "cpu" or (chosen.why and chosen.name != "flash")
    remedy = "report it" if plain else "set model.attention=xla, and report it"
    # Float32 products take bfloat16 passes on accelerators.
    exact = dtype == jnp.float32 and chosen.platform == "cpu"
    tolerance = 1e-4 if exact else 0.03
    names = ("the output", "the gradient of q", "the gradient of k", "the gradient of v")
    for window in (NO_WINDOW, max(1, T // 8)):  # shorter than most documents
        window = np.int32(window)
        try:
            measured = jax.device_get(errors(q_BTNH, k_BSKH, v_BSKU, ids_BT, weights_BTNU, window))
        except Exception as error:  # from a compiler, a chip, or a private function of JAX
            if plain:
                raise
            reason = f"{type(error).__name__}: {error}".partition("\n")[0]
            raise ValueError(
                f"attention kernel {chosen.name!r} refuses on {chosen.platform}: {reason}; {remedy}"
            ) from error
        for name, error in zip(names, measured, strict=True):
            if not error <= tolerance:  # NaN too
                raise ValueError(
                    f"attention kernel {chosen.name!r} is wrong on {chosen.platform}: {name} is "
                    f"off by {error:.2g} of its size (window {window} of {T} tokens, {dtype}); "
                    f"{remedy}"
                )
    return f"{chosen.describe()}, products in {dtype}"
