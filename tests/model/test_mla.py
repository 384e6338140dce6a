"""Multi-head latent attention: key smearing by its formula, and aligned queries."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from ropewalk.model.mla import LatentAttention
from tests.interop.weights_helpers import CASES

MODEL = dataclasses.replace(CASES["mla without a latent of queries"][2], num_layers=1)
D, N, EPSILON = MODEL.embed_dim, MODEL.num_heads, MODEL.norm_epsilon
C, H, P = MODEL.mla.kv_lora_rank, MODEL.mla.qk_nope_head_dim, MODEL.mla.qk_rope_head_dim


def test_keys_are_smeared_in_both_parts():
    """In two packed documents; each head has its share, and the part that rotates one for all."""
    model = dataclasses.replace(MODEL, shift_keys=True)
    layer = nnx.eval_shape(lambda: LatentAttention(model, model.mla, rngs=nnx.Rngs(params=0)))
    random = np.random.default_rng(0)
    shapes = nnx.to_pure_dict(nnx.state(layer))
    p = jax.tree.map(lambda leaf: random.normal(size=leaf.shape), shapes)
    p["latent_norm"]["scale"] = np.ones(C)
    nnx.update(layer, jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), p))
    x_TD, positions_T = random.normal(size=(12, D)), np.array([*range(5), *range(7)])
    compute_qkv = jax.jit(lambda x_BTD: layer.compute_qkv(x_BTD, positions_T[None]))
    _, k_BSNX, _ = compute_qkv(jnp.asarray(x_TD, jnp.float32)[None])
    latent_TC = x_TD @ p["latent_down"]
    latent_TC /= np.sqrt((latent_TC**2).mean(-1, keepdims=True) + EPSILON)
    k_rope_TNP = np.repeat((x_TD @ p["key_rope"])[:, None], N, axis=1)
    k_TNX = np.append(np.einsum("tc,cnh->tnh", latent_TC, p["key_up"]), k_rope_TNP, axis=2)
    shift_NX = np.repeat([p["shift"], np.full(N, p["shift_rope"][0])], [H, P], axis=0).T
    previous_TNX = np.roll(k_TNX, 1, axis=0) * (positions_T > 0)[:, None, None]
    expected_TNX = k_TNX + (previous_TNX - k_TNX) / (1 + np.exp(-shift_NX))
    np.testing.assert_allclose(k_BSNX[0], expected_TNX, atol=1e-4)


def test_align_query_key_starts_queries_as_keys():
    """Both parts are equal, the unrotated one up to the norm of the token's latent."""
    changed = dataclasses.replace(MODEL, align_query_key=True, shift_keys=True)
    layers = (LatentAttention(m, m.mla, rngs=nnx.Rngs(params=3)) for m in (changed, MODEL))
    p, plain = (jax.device_get(nnx.to_pure_dict(nnx.state(layer))) for layer in layers)
    x_TD = np.random.default_rng(1).normal(size=(5, D))
    q_TNX = np.einsum("td,dnx->tnx", x_TD, p["query"])
    latent_TC = x_TD @ p["latent_down"]
    scale_T11 = np.sqrt((latent_TC**2).mean(-1) + EPSILON)[:, None, None]
    k_TNH = np.einsum("tc,cnh->tnh", latent_TC / scale_T11[..., 0], p["key_up"])
    np.testing.assert_allclose(q_TNX[..., :H], scale_T11 * k_TNH, atol=1e-5)
    for head in range(N):
        np.testing.assert_allclose(q_TNX[:, head, H:], x_TD @ p["key_rope"], atol=1e-5)
    # Half of a key is the previous token's.
    assert not p["shift"].any() and not p["shift_rope"].any()
    # The options move nothing else: members stay comparable with and without them.
    for name in ("latent_down", "key_rope", "key_up", "value_up", "out"):
        np.testing.assert_array_equal(p[name], plain[name])
    assert np.abs(p["query"] - plain["query"]).max() > 0.1
