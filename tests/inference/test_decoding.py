"""Sizes of caches; see test_engine.py for generation with them."""

import functools

import jax
import numpy as np
import pytest

from ropewalk.evals.generation import decoding
from ropewalk.evals.generation.cache import cache_sizes
from ropewalk.model import transformer
from tests.inference.models import config

ROOM = 128


def caches(model):
    params = transformer.abstract_params(model)
    static, sizes = model.forward_architecture(), cache_sizes(model, ROOM)
    zeros = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), params)
    prefill = functools.partial(decoding.prefill, static, sizes)
    ids, lengths = np.zeros((3, 64), np.int32), np.array([1, 64, 20], np.int32)
    weights, table = decoding.unstack(static, zeros), model.position_table(ROOM)
    return jax.eval_shape(prefill, weights, table, ids, lengths)[1]


@pytest.mark.parametrize(
    "changes, slots",
    [({}, (ROOM, ROOM)), (dict(window=(7, None)), (7, ROOM))],
)
def test_cache_size_equals_count_cached(changes, slots):
    """A window limits a layer."""
    model = config(**changes)
    numbers = [sum(leaf.size for leaf in jax.tree.leaves(layer)) for layer in caches(model)]
    assert numbers == [3 * n * transformer.count_cached(model) // 2 for n in slots]
