"""The attention layer equals its formulas, in float64 loops over queries, heads, and keys."""

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
from ropewalk.model.mla import LatentAttention
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Warm(Rope):
    """Scales logits, as YaRN does."""

    @property
    def logit_scale(self) -> float:
        return 1.7


def make_layer(config: ModelConfig) -> Attention:
    """A layer whose every parameter is random, those that start at 0 or 1 too."""
    layer = Attention(config, rngs=nnx.Rngs(params=3))
    random = np.random.default_rng(7)
    for name in ("query_norm", "key_norm"):
        if hasattr(layer, name):
            scale = getattr(layer, name).scale
            scale[...] = jnp.asarray(1 + 0.3 * random.normal(size=H), jnp.float32)
    for name in ("query_bias", "key_bias", "value_bias"):
        if hasattr(layer, name):
            bias = getattr(layer, name)
            bias[...] = jnp.asarray(random.normal(size=bias.shape), jnp.float32)
    if config.shift_keys:
        layer.shift[...] = jnp.asarray(random.normal(size=config.num_kv_heads), jnp.float32)
    return layer


def run(
    layer: Attention | LatentAttention, x_TD: np.ndarray, positions_T, segment_ids_T
) -> np.ndarray:
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


def attend_by_loops(layer: Attention, x_TD: np.ndarray, positions_T, segment_ids_T) -> np.ndarray:
    """One query, head and key at a time, in float64."""
    config = layer.config
    weights = {
        name: np.asarray(getattr(layer, name)[...], np.float64)
        for name in ("query", "key", "value", "out")
    }
    x_TD = np.asarray(x_TD, np.float64)
    (variants,) = rotary.expand_pattern(config.rotary, 1, config.kv_heads)
    variants = [*variants] * (config.kv_heads // len(variants))

    def project_token(name, t, head):
        """Query, key or value of one token and head."""
        bias = getattr(layer, f"{name}_bias")[...][head] if config.qkv_bias else 0
        return x_TD[t] @ weights[name][:, head] + bias

    def normed(x, norm):
        return x / np.sqrt((x * x).mean() + config.norm_epsilon) * np.asarray(norm.scale[...])

    def rotate(x, position, head):
        z = x[: H // 2] + 1j * x[H // 2 :]
        z *= np.exp(1j * position * variants[head].inv_freq(H))
        return np.concatenate([z.real, z.imag])

    def key(s, head):
        k = project_token("key", s, head)
        if config.qk_norm:
            k = normed(k, layer.key_norm)
        return k

    def smeared_key(s, head):
        if not config.shift_keys:
            return key(s, head)
        share = 1 / (1 + math.exp(-float(layer.shift[...][head])))
        first = positions_T[s] == 0 or s == 0
        previous = np.zeros(H) if first else key(s - 1, head)
        return (1 - share) * key(s, head) + share * previous

    out_TD = np.zeros((len(x_TD), D))
    masked_distances = config.masked_distances or (-1, -1)
    for t in range(len(x_TD)):
        for head in range(N):
            group = head // (N // config.num_kv_heads)
            q = project_token("query", t, head)
            if config.qk_norm:
                q = normed(q, layer.query_norm)
            growth = math.log(positions_T[t] + 1) / math.log(CONTEXT)
            variant = variants[group]
            scale = {"off": 1, "train": growth, "extrapolate": max(1, growth)}[variant.log_n]
            scale /= math.sqrt(H)
            rotates = np.tile(variant.inv_freq(H) > 0, 2)
            factors = np.where(rotates, variant.logit_scale, variant.unrotated_logit_scale)
            visible = [
                s
                for s in range(t + 1)
                if segment_ids_T[s] == segment_ids_T[t]
                and (config.window is None or t - s < config.window)
                and not masked_distances[0] <= t - s <= masked_distances[1]
            ]
            q = rotate(q, positions_T[t], group) * factors
            keys = (rotate(smeared_key(s, group), positions_T[s], group) for s in visible)
            logits = [scale * (q @ k) for k in keys]
            weights_S = np.exp(logits - np.max(logits))
            weights_S /= weights_S.sum()
            value = sum(
                share * project_token("value", s, group)
                for share, s in zip(weights_S, visible, strict=True)
            )
            out_TD[t] += value @ weights["out"][head]
    return out_TD


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
        {"rotary": Warm(base=50.0, rotary_fraction=0.5)},
        {"rotary": Recorded(name="", values=(1.0, 0.1, 0.0, 0.0), scale=1.7, unrotated_scale=0.6)},
        {"masked_distances": (3, 4)},
        {"masked_distances": (1, 1), "window": 4},
        {"qkv_bias": True, "qk_norm": True, "shift_keys": True},
        {"align_query_key": True},
        {"num_kv_heads": N},
        {"num_kv_heads": 1},
        {"qk_norm": True, "shift_keys": True, "window": 4, "rotary": Warm(base=9.0, log_n="train")},
        {"rotary": rotary.parse_pattern("[[rope(base=9),rope(base=1e4,log_n=train)]]")},
    ],
    ids=str,
)
def test_layer_equals_formulas(changes, positions_T, segment_ids_T):
    config = dataclasses.replace(BASIC, **changes)
    layer = make_layer(config)
    np.testing.assert_allclose(
        run(layer, X_TD, positions_T, segment_ids_T),
        attend_by_loops(layer, X_TD, positions_T, segment_ids_T),
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
