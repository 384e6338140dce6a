"""Multi-head latent attention: key smearing by its formula, and aligned queries."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from ropewalk.model.mla import LatentAttention
from tests.model.test_attention import run
from tests.model.test_llama_reference import MODELS, C, D, H, N, P

EPSILON = 1e-6


def test_key_smearing_equals_formula():
    """Two packed documents, one query, head and key at a time, in float64."""
    model = dataclasses.replace(MODELS["mla, direct queries"], num_layers=1, shift_keys=True)
    mla = model.mla
    assert mla
    layer = nnx.eval_shape(lambda: LatentAttention(model, mla, rngs=nnx.Rngs(params=0)))
    random = np.random.default_rng(0)
    shapes = nnx.to_pure_dict(nnx.state(layer))
    p = jax.tree.map(lambda leaf: random.normal(size=leaf.shape) / np.sqrt(leaf.shape[0]), shapes)
    p["latent_norm"]["scale"] = np.ones(C)
    nnx.update(layer, jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), p))
    x_TD = random.normal(size=(12, D))
    positions, documents = [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 6], [1] * 5 + [2] * 7
    inv_freq = 500.0 ** (-2 * np.arange(P // 2) / P)
    latent_TC = x_TD @ p["latent_down"]
    latent_TC /= np.sqrt((latent_TC**2).mean(-1, keepdims=True) + EPSILON)

    def rotate(x, t):
        z = (x[: P // 2] + 1j * x[P // 2 :]) * np.exp(1j * positions[t] * inv_freq)
        return np.concatenate([z.real, z.imag])

    def smear(keys_T, t, shift):
        share = 1 / (1 + np.exp(-shift))
        previous = keys_T[t - 1] if positions[t] else 0
        return (1 - share) * keys_T[t] + share * previous

    expected_TD = np.zeros((12, D))
    for t, head in np.ndindex(12, N):
        q = x_TD[t] @ p["query"][:, head]
        q = np.concatenate([q[:H], rotate(q[H:], t)])
        visible = [s for s in range(t + 1) if documents[s] == documents[t]]
        logits = []
        for s in visible:
            k_nope = smear(latent_TC @ p["key_up"][:, head], s, p["shift"][head])
            k_rope = smear(x_TD @ p["key_rope"], s, p["shift_rope"][0])
            logits.append(q @ np.concatenate([k_nope, rotate(k_rope, s)]) / np.sqrt(H + P))
        weights = np.exp(logits) / np.exp(logits).sum()
        expected_TD[t] += weights @ (latent_TC[visible] @ p["value_up"][:, head]) @ p["out"][head]

    np.testing.assert_allclose(run(layer, x_TD, positions, documents), expected_TD, atol=1e-5)


def test_align_query_key_starts_queries_as_keys():
    """Both parts are equal, the unrotated one up to the norm of the token's latent."""
    model = dataclasses.replace(MODELS["mla, direct queries"], num_layers=1)
    mla = model.mla
    assert mla
    tricks = dict(align_query_key=True, shift_keys=True)

    @jax.jit
    def init():
        return [
            nnx.to_pure_dict(nnx.state(LatentAttention(changed, mla, rngs=nnx.Rngs(params=3))))
            for changed in (dataclasses.replace(model, **tricks), model)
        ]

    p, plain = jax.device_get(init())
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
