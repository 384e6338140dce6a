"""A training step with exact phases beside one whose angles are a plain float32 product."""

import functools
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.timing import alternate, compare, one_member, random_batch
from configs import find_config
from model import transformer
from training.step import train_step


def float32_cos_sin(cycles_hi_KR, cycles_lo_KR, positions_BT):
    """As peers do it: 0.06 rad off at a million tokens."""
    inv_freq_KR = cycles_hi_KR.astype(jnp.float32) * np.float32(2 * np.pi / 2**32)
    angles_BTKR = positions_BT[..., None, None].astype(jnp.float32) * inv_freq_KR
    return jnp.cos(angles_BTKR), jnp.sin(angles_BTKR)


def main(rounds: int) -> None:
    config = find_config("small")
    arguments = (*one_member(config), random_batch(config), np.int32(0))

    def compiled():
        # A function of its own each time: a traced one would be found again.
        step = jax.jit(lambda *arguments: train_step(config, *arguments))
        return step.lower(*arguments).compile()

    exact = compiled()
    with mock.patch.object(transformer, "cos_sin", float32_cos_sin):
        product = compiled()
    functions = {"exact": exact, "float32 product": product}
    calls = {name: functools.partial(step, *arguments) for name, step in functions.items()}
    compare(alternate(calls, rounds))
