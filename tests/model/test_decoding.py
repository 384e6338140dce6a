"""What caches hold. What is written with them: tests/generation/test_engine.py."""

import functools

import jax
import numpy as np
import pytest

from model import decoding, transformer
from model.positions import position_table
from tests.generation.networks import STATIC, config

ROOM = 128


def caches(model):
    params = transformer.abstract_params(model)
    network, layout = decoding.network(model, "float32"), decoding.layout(model, ROOM)
    zeros = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), params)
    read = functools.partial(decoding.prefill, network, layout)
    ids, lengths = np.zeros((3, 64), np.int32), np.array([1, 64, 20], np.int32)
    weights, table = decoding.unstack(network, zeros), position_table(model, ROOM)
    return jax.eval_shape(read, weights, table, ids, lengths)[1]


@pytest.mark.parametrize("name", ["gqa", "latent", "qk-norm", "nope mix"])
def test_a_cache_holds_what_count_cached_says(name):
    """Of latents that is the latent and one rotated key, and nothing a head."""
    model = config(**STATIC[name])
    numbers = sum(leaf.size for leaf in jax.tree.leaves(caches(model)))
    assert numbers == 3 * ROOM * transformer.count_cached(model)


def test_a_layer_with_a_window_holds_that_many_tokens():
    windowed, whole = caches(config(window=(7, None)))
    assert windowed.k_BKHS.shape == (3, 2, 16, 7) and windowed.v_BKSU.shape == (3, 2, 7, 16)
    assert whole.k_BKHS.shape == (3, 2, 16, ROOM) and whole.last_BKH is None


def test_dynamic_variants_alone_keep_keys_unrotated():
    dynamic = "dynamic_yarn(base=500,original_context_length=64)"
    assert decoding.layout(config(rotary=f"[rope(base=500),{dynamic}]"), 9).unrotated == (0, 1)
    assert decoding.layout(config(rotary=f"[[nope,{dynamic}],nope]"), 9).unrotated == (1, 0)
    assert decoding.layout(config(), 9).unrotated == (0, 0)
