"""Training step with exact phases beside one whose angles are a float32 product."""

import functools
from collections.abc import Iterator
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.record import Result
from benchmarks.shapes import cut
from benchmarks.suite import Setting
from benchmarks.timing import alternate, init_member, random_batch
from configs import small
from model import transformer
from training.step import train_step


def measure(setting: Setting) -> Iterator[Result]:
    """Yield the time with exact phases over the time with a float32 product."""
    config = cut(small.configs[0], setting.scale)
    arguments = (*init_member(config), random_batch(config), np.int32(0))

    def compile_step():
        # A new function each time, because JAX caches traces by function.
        step = jax.jit(lambda *arguments: train_step(config, *arguments))
        return functools.partial(step.lower(*arguments).compile(), *arguments)

    functions = {"exact": compile_step()}
    with mock.patch.object(transformer, "cos_sin", float32_cos_sin):
        functions["product"] = compile_step()
    yield Result.from_seconds(
        "exact phases, sizes of `small`",
        "time of a step over that with a float32 product",
        alternate(functions, setting.rounds),
        at_most=1.03,
    )


def float32_cos_sin(cycles_hi_KR, cycles_lo_KR, positions_BT):
    """Return cosines and sines of float32 angles: 0.06 rad off at a million tokens."""
    inv_freq_KR = cycles_hi_KR.astype(jnp.float32) * np.float32(2 * np.pi / 2**32)
    angles_BTKR = positions_BT[..., None, None].astype(jnp.float32) * inv_freq_KR
    return jnp.cos(angles_BTKR), jnp.sin(angles_BTKR)
