"""Sizes of caches; see test_engine.py for generation with them."""

import functools

import jax
import numpy as np
import pytest

from ropewalk.inference import decoding
from ropewalk.inference.cache import cache_sizes
from ropewalk.model import transformer
from tests.inference.models import LATENT, config

ROOM = 128


def caches(model):
    params = transformer.abstract_params(model)
    static, sizes = model.forward_architecture(), cache_sizes(model, ROOM)
    zeros = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), params)
    prefill = functools.partial(decoding.prefill, static, sizes)
    ids, lengths = np.zeros((3, 64), np.int32), np.array([1, 64, 20], np.int32)
    weights, table = decoding.unstack(static, zeros), model.position_table(ROOM)
    return jax.eval_shape(prefill, weights, table, ids, lengths)[1]


@pytest.mark.parametrize("changes", [{}, LATENT], ids=["heads", "latents"])
def test_cache_size_equals_count_cached(changes):
    """With latents: the latent and one rotated key, nothing per head."""
    model = config(**changes)
    numbers = sum(leaf.size for leaf in jax.tree.leaves(caches(model)))
    assert numbers == 3 * ROOM * transformer.count_cached(model)


def test_window_limits_the_cache():
    windowed, unlimited = caches(config(window=(7, None)))
    assert windowed.k_BKHS.shape == (3, 2, 16, 7) and windowed.v_BKSU.shape == (3, 2, 7, 16)
    assert unlimited.k_BKHS.shape == (3, 2, 16, ROOM) and unlimited.last_BKH is None
