"""Patterns over layers, and heads of a layer that rotate at frequencies of their own."""

import jax
import numpy as np
import pytest

from ropewalk.configs import find_config
from ropewalk.experiment import overrides
from ropewalk.model import transformer
from ropewalk.model.config import NO_WINDOW, ModelConfig
from ropewalk.model.positions import stack_tables
from tests.models import small_model

ONE_SLOW = "[[rope(base=10),rope(base=10),rope(base=10),rope(base=1e4)]]"

init = jax.jit(transformer.init, static_argnums=0)


def config(pattern: str, **changes) -> ModelConfig:
    sizes = dict(num_layers=2, num_heads=8, num_kv_heads=4, head_dim=16)
    return small_model(**sizes | changes, rotary=pattern)


def logits(model: ModelConfig, table, params=None) -> np.ndarray:
    tokens_BT = np.random.default_rng(1).integers(0, 64, (2, 20))
    params = init(model, 0) if params is None else params
    return np.asarray(transformer.document_logits(model, params, table, tokens_BT))


def test_a_pattern_repeats_from_the_first_layer_on():
    model = config("[rope(base=100),rope(base=1e4),nope]", num_layers=4, window=(8, None))
    table = model.position_table(64)
    # The slowest of 8 pairs rotates base ** (-14 / 16) radians a token.
    expected = [100**-0.875, 1e4**-0.875, 0.0, 100**-0.875]
    np.testing.assert_allclose(table.inv_freq[:, 0, -1], expected, rtol=1e-12)
    assert table.window.tolist() == [8, NO_WINDOW, 8, NO_WINDOW]


@pytest.mark.long
def test_members_of_a_sweep_stack_where_only_one_tells_heads_apart():
    models = config("rope(base=10)"), config(ONE_SLOW)
    tables = [model.position_table(32) for model in models]
    stacked = stack_tables(tables)
    assert stacked.cycles_hi.shape == (2, 2, 4, 8)
    for member, model in enumerate(models):
        row = jax.tree.map(lambda x: x[member], stacked)  # noqa: B023
        np.testing.assert_allclose(logits(model, row), logits(model, tables[member]), atol=1e-5)


def test_the_key_that_latent_heads_share_cannot_rotate_in_two_ways():
    latent = find_config("mla_tiny")
    with pytest.raises(ValueError, match="mla rotates one key for all heads"):
        overrides.apply(latent, ["model.rotary=[[rope(base=10),rope(base=100)]]"])
    equal = overrides.apply(latent, ["model.rotary=[[rope(base=10),rope(base=10)]]"])
    assert equal.model.position_table(8).cycles_hi.shape[1] == 1


def test_heads_that_are_left_out_have_no_effect_and_others_do():
    model = config("rope(base=10)")
    masked = transformer.without_heads(init(model, 0), [(0, 4), (1, 0)])
    table, blocks = model.position_table(32), masked["blocks"]
    expected = logits(model, table, masked)
    for layer, head, has_effect in ((0, 4, False), (1, 0, False), (0, 0, True), (1, 4, True)):
        query = np.array(blocks["attention"]["query"])
        query[layer, :, head] *= -9
        attention = {**blocks["attention"], "query": query}
        changed = {**masked, "blocks": {**blocks, "attention": attention}}
        assert (np.abs(logits(model, table, changed) - expected).max() > 1e-3) == has_effect
