"""The attention layer equals its formulas in float64."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from ropewalk.model import rotary
from ropewalk.model.attention import Attention
from ropewalk.model.config import ModelConfig
from ropewalk.model.positions import cos_sin
from ropewalk.model.rotary.nope import Nope
from ropewalk.model.rotary.recorded import Recorded
from ropewalk.model.rotary.rope import Rope
from tests.models import small_model

D, N, K, H, T = 24, 4, 2, 8, 12
CONTEXT = 16  # trained on

BASIC = small_model(
    vocab_size=1, embed_dim=D, num_heads=N, num_kv_heads=K, head_dim=H, mlp_dim=1,
    rotary=Rope(base=50.0),
)  # fmt: skip


def make_layer(config: ModelConfig) -> Attention:
    """A layer whose every parameter is random, those that start at 0 or 1 too."""
    layer, random = Attention(config, rngs=nnx.Rngs(params=3)), np.random.default_rng(7)
    noise = lambda x: x + jnp.asarray(0.3 * random.normal(size=x.shape), jnp.float32)  # noqa: E731
    nnx.update(layer, jax.tree.map(noise, nnx.state(layer)))
    return layer


def run(layer: Attention, x_TD: np.ndarray, positions_T, segment_ids_T) -> np.ndarray:
    table = layer.config.position_table(CONTEXT)
    row = jax.tree.map(lambda x: x[0], table)
    inputs = np.asarray(x_TD, np.float32)[None], np.array([positions_T]), np.array([segment_ids_T])
    return np.asarray(_attend(*nnx.split(layer), row, *inputs)[0])


@functools.partial(jax.jit, static_argnums=0)
def _attend(graph, params, row, x_BTD, positions_BT, ids_BT):
    layer = nnx.merge(graph, params)
    rotation = cos_sin(row.cycles_hi, row.cycles_lo, positions_BT)
    q_k_v = layer.compute_qkv(x_BTD, positions_BT)
    return layer.attend(q_k_v, row, rotation, positions_BT, ids_BT)


def attend_in_float64(layer: Attention, x_TD: np.ndarray, positions_T, segment_ids_T) -> np.ndarray:
    """Return the output, one query head at a time, from a matrix of all distances."""
    config, T = layer.config, len(x_TD)
    positions_T, ids_T = np.array(positions_T), np.array(segment_ids_T)
    (variants,) = rotary.expand_pattern(config.rotary, 1, config.kv_heads)
    variants = [*variants] * (config.kv_heads // len(variants))

    def weights(name):
        return np.asarray(getattr(layer, name)[...], np.float64)

    def project(name):
        y_TNH = np.einsum("TD,DNH->TNH", x_TD, weights(name))
        if config.qkv_bias:
            y_TNH += weights(f"{name}_bias")
        if config.qk_norm and name != "value":
            y_TNH /= np.sqrt((y_TNH**2).mean(-1, keepdims=True) + config.norm_epsilon)
            y_TNH *= getattr(layer, f"{name}_norm").scale[...]
        return y_TNH

    def rotate(y_TH, variant):
        z_TR = y_TH[:, : H // 2] + 1j * y_TH[:, H // 2 :]
        z_TR *= np.exp(1j * np.outer(positions_T, variant.inv_freq(H)))
        return np.concatenate([z_TR.real, z_TR.imag], axis=1)

    q_TNH, k_TKH, v_TKH = map(project, ("query", "key", "value"))
    if config.shift_keys:
        share_K1 = 1 / (1 + np.exp(-weights("shift")))[:, None]
        previous_TKH = np.concatenate([0 * k_TKH[:1], k_TKH[:-1]])
        previous_TKH[positions_T == 0] = 0
        k_TKH = (1 - share_K1) * k_TKH + share_K1 * previous_TKH
    distance_TS = np.arange(T)[:, None] - np.arange(T)
    low, high = config.masked_distances or (-1, -1)
    is_visible_TS = (ids_T[:, None] == ids_T) & (distance_TS >= 0)
    is_visible_TS &= (distance_TS < low) | (distance_TS > high)
    if config.window is not None:
        is_visible_TS &= distance_TS < config.window
    growth_T = np.log(positions_T + 1) / math.log(CONTEXT)
    out_TD = np.zeros((T, D))
    for head in range(N):
        group = head // (N // config.num_kv_heads)
        variant = variants[group]
        scales = {"off": np.ones(T), "train": growth_T, "extrapolate": np.maximum(1, growth_T)}
        rotates = np.tile(variant.inv_freq(H) > 0, 2)
        factors = np.where(rotates, variant.logit_scale, variant.unrotated_logit_scale)
        q_TH = rotate(q_TNH[:, head], variant) * factors * scales[variant.log_n][:, None]
        logits_TS = q_TH @ rotate(k_TKH[:, group], variant).T / math.sqrt(H)
        weights_TS = np.exp(np.where(is_visible_TS, logits_TS, -np.inf))
        weights_TS /= weights_TS.sum(axis=1, keepdims=True)
        out_TD += weights_TS @ v_TKH[:, group] @ weights("out")[head]
    return out_TD


SCALED = Recorded(name="", values=(1.0, 0.1, 0.0, 0.0), scale=1.7, unrotated_scale=0.6)
LOG_N = dataclasses.replace(SCALED, log_n="train")
X_TD = np.random.default_rng(0).normal(size=(T, D)).astype(np.float32)
PACKED = [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 6], [1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2]
LATE = [*range(9, 9 + T)], [1] * T  # around the trained context, where log-n starts to act


@pytest.mark.parametrize("positions_T, segment_ids_T", [PACKED, LATE], ids=["packed", "late"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"rotary": Nope()},
        {"rotary": Rope(base=50.0, rotary_fraction=0.5)},
        {"rotary": Rope(base=50.0, log_n="extrapolate")},
        {"rotary": SCALED},
        {"masked_distances": (3, 4)},
        {"masked_distances": (1, 1), "window": 4},
        {"qkv_bias": True, "qk_norm": True, "shift_keys": True},
        {"align_query_key": True},
        {"num_kv_heads": N},
        {"num_kv_heads": 1},
        {"qk_norm": True, "shift_keys": True, "window": 4, "rotary": LOG_N},
        {"rotary": rotary.parse_pattern("[[rope(base=9),rope(base=1e4,log_n=train)]]")},
    ],
    ids=str,
)
def test_layer_equals_formulas(changes, positions_T, segment_ids_T):
    config = dataclasses.replace(BASIC, **changes)
    layer = make_layer(config)
    np.testing.assert_allclose(
        run(layer, X_TD, positions_T, segment_ids_T),
        attend_in_float64(layer, X_TD, positions_T, segment_ids_T),
        atol=1e-5,
    )


def test_align_query_key_starts_keys_as_queries():
    """Key head g equals the first query head of its group; values do not."""
    layer = Attention(dataclasses.replace(BASIC, align_query_key=True), rngs=nnx.Rngs(params=0))
    np.testing.assert_array_equal(layer.key[:, 0], layer.query[:, 0])
    np.testing.assert_array_equal(layer.key[:, 1], layer.query[:, 2])
    assert np.abs(layer.value[:, 0] - layer.query[:, 0]).max() > 0.1
    plain = Attention(BASIC, rngs=nnx.Rngs(params=0))
    assert np.abs(plain.key[:, 0] - plain.query[:, 0]).max() > 0.1
    # The option moves nothing else: members stay comparable with and without it.
    for name in ("query", "value", "out"):
        np.testing.assert_array_equal(getattr(layer, name)[...], getattr(plain, name)[...])
