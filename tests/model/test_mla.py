"""Multi-head latent attention against transformers' DeepSeek-V3 (dense layers), same weights.

LITERALS are what `DeepseekV3ForCausalLM` of transformers 5.23 with torch 2.13 gave for the weights
below. `tests/interop` compares the two live, after an import and after an export.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from model import rotary, transformer
from model.config import MlaConfig, ModelConfig
from model.mla import LatentAttention
from model.positions import cos_sin
from tests.models import small_model

V, D, L, N, F = 96, 32, 2, 4, 48
A, C, H, P, U = 12, 10, 8, 4, 6
EPSILON = 1e-6
TOKENS = (np.arange(2 * 40).reshape(2, 40) * 37 + 11) % V
PLAIN = "rope(base=500)"
YARN = "yarn(base=500,factor=4,original_context_length=16,mscale=1.0,mscale_all_dim=1.0)"
CASES = {"plain": (PLAIN, True), "yarn": (YARN, True), "direct queries": (PLAIN, False)}

# logits[row, position, id], and the sum of all |logits|.
INDICES = [(0, 0, 0), (0, 7, 95), (0, 39, 50), (1, 3, 17), (1, 21, 64), (1, 39, 2)]
LITERALS = {
    "plain": (
        [-0.373073, 0.8944998, -0.1569581, 1.025546, -2.399329, -2.466932],
        11715.827,
    ),
    "yarn": (
        [-0.373073, 0.7128131, -1.576949, 0.8158902, -2.280201, -1.88458],
        11686.658,
    ),
    "direct queries": (
        [-3.681717, 2.688148, -3.235887, 1.208562, -1.91758, 0.9554591],
        11585.709,
    ),
}


def config(case: str) -> ModelConfig:
    expression, latent_queries = CASES[case]
    return small_model(
        vocab_size=V, embed_dim=D, num_layers=L, num_heads=N, num_kv_heads=N, head_dim=H + P,
        mlp_dim=F, rotary=rotary.parse(expression),
        mla=MlaConfig(
            kv_lora_rank=C, q_lora_rank=A if latent_queries else None, qk_nope_head_dim=H,
            qk_rope_head_dim=P, v_head_dim=U,
        ),
        norm_epsilon=EPSILON, tie_embeddings=False,
    )  # fmt: skip


def huggingface_weights(case: str) -> dict[str, np.ndarray]:
    """Weights by transformers' names, `[out, in]`, from numpy's frozen generator."""
    random = np.random.RandomState(21)
    shapes = {
        "model.embed_tokens.weight": (V, D),
        "model.norm.weight": (D,),
        "lm_head.weight": (V, D),
    }
    for layer in range(L):
        prefix = f"model.layers.{layer}."
        shapes |= {
            prefix + "input_layernorm.weight": (D,),
            prefix + "self_attn.kv_a_proj_with_mqa.weight": (C + P, D),
            prefix + "self_attn.kv_a_layernorm.weight": (C,),
            prefix + "self_attn.kv_b_proj.weight": (N * (H + U), C),
            prefix + "self_attn.o_proj.weight": (D, N * U),
            prefix + "post_attention_layernorm.weight": (D,),
            prefix + "mlp.gate_proj.weight": (F, D),
            prefix + "mlp.up_proj.weight": (F, D),
            prefix + "mlp.down_proj.weight": (D, F),
        }
        if CASES[case][1]:
            shapes |= {
                prefix + "self_attn.q_a_proj.weight": (A, D),
                prefix + "self_attn.q_a_layernorm.weight": (A,),
                prefix + "self_attn.q_b_proj.weight": (N * (H + P), A),
            }
        else:
            shapes[prefix + "self_attn.q_proj.weight"] = (N * (H + P), D)
    weights = {name: 0.3 * random.standard_normal(shape) for name, shape in shapes.items()}
    weights = {n: 1 + w if "norm" in n else w for n, w in weights.items()}
    return {name: weight.astype(np.float32) for name, weight in weights.items()}


def our_params(weights: dict[str, np.ndarray], case: str) -> transformer.Params:
    # DeepSeek turns neighbours (2i, 2i + 1); we turn halves (i, i + P / 2).
    halves = np.concatenate([np.arange(0, P, 2), np.arange(1, P, 2)])

    def stacked(name: str) -> np.ndarray:
        return np.stack([weights[f"model.layers.{layer}.{name}.weight"] for layer in range(L)])

    def transposed(name: str) -> np.ndarray:
        return stacked(name).swapaxes(1, 2)

    def queries(name: str) -> np.ndarray:
        q = transposed(name)
        q = q.reshape(L, q.shape[1], N, H + P)
        return np.concatenate([q[..., :H], q[..., H:][..., halves]], axis=-1)

    down = transposed("self_attn.kv_a_proj_with_mqa")
    up = transposed("self_attn.kv_b_proj").reshape(L, C, N, H + U)
    attention = {
        "latent_down": down[..., :C],
        "latent_norm": {"scale": stacked("self_attn.kv_a_layernorm")},
        "key_rope": down[..., C:][..., halves],
        "key_up": up[..., :H],
        "value_up": up[..., H:],
        "out": transposed("self_attn.o_proj").reshape(L, N, U, D),
    }
    if CASES[case][1]:
        attention |= {
            "query_down": transposed("self_attn.q_a_proj"),
            "query_latent_norm": {"scale": stacked("self_attn.q_a_layernorm")},
            "query_up": queries("self_attn.q_b_proj"),
        }
    else:
        attention["query"] = queries("self_attn.q_proj")
    params = {
        "embedding": weights["model.embed_tokens.weight"],
        "output": weights["lm_head.weight"],
        "final_norm": {"scale": weights["model.norm.weight"]},
        "blocks": {
            "attention_norm": {"scale": stacked("input_layernorm")},
            "attention": attention,
            "mlp_norm": {"scale": stacked("post_attention_layernorm")},
            "mlp": {
                "gate": transposed("mlp.gate_proj"),
                "up": transposed("mlp.up_proj"),
                "down": transposed("mlp.down_proj"),
            },
        },
    }
    return params


def logits(model: ModelConfig, params: transformer.Params) -> np.ndarray:
    B, T = TOKENS.shape

    @jax.jit
    def run(params):
        hidden_BTD = transformer.hidden(
            model, params, model.position_table(T), jnp.asarray(TOKENS),
            jnp.tile(jnp.arange(T), (B, 1)), jnp.ones((B, T), jnp.int32),
        )  # fmt: skip
        return transformer.unembed(model, params, hidden_BTD)

    return np.asarray(run(params))


def our_logits(case: str) -> np.ndarray:
    params = our_params(huggingface_weights(case), case)
    shapes = jax.tree.map(lambda x: x.shape, params)
    assert shapes == jax.tree.map(lambda x: x.shape, transformer.abstract_params(config(case)))
    return logits(config(case), params)


@pytest.mark.parametrize("case", CASES)
def test_logits_are_the_recorded_ones_of_transformers(case):
    logits_BTV = our_logits(case)
    values, absolute_sum = LITERALS[case]
    np.testing.assert_allclose([logits_BTV[index] for index in INDICES], values, atol=1e-4)
    assert np.abs(logits_BTV.astype(np.float64)).sum() == pytest.approx(absolute_sum, rel=1e-5)


def test_key_smearing_equals_formula():
    """Two packed documents, one query, head and key at a time, in float64."""
    model = dataclasses.replace(config("direct queries"), num_layers=1, shift_keys=True)
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

    row = jax.tree.map(lambda x: x[0], model.position_table(40))
    positions_BT = jnp.array([positions])
    rotation = cos_sin(row.cycles_hi, row.cycles_lo, positions_BT)
    x_BTD = jnp.asarray(x_TD, jnp.float32)[None]
    got_BTD = jax.jit(layer)(x_BTD, row, rotation, positions_BT, jnp.array([documents]))
    np.testing.assert_allclose(got_BTD[0], expected_TD, atol=1e-5)


def test_align_query_key_starts_queries_as_keys():
    """Both parts are equal, the unrotated one up to the norm of the token's latent."""
    model = dataclasses.replace(config("direct queries"), num_layers=1)
    mla = model.mla
    assert mla
    tricks = dict(align_query_key=True, shift_keys=True)
    p, plain = (
        nnx.to_pure_dict(nnx.state(LatentAttention(changed, mla, rngs=nnx.Rngs(params=3))))
        for changed in (dataclasses.replace(model, **tricks), model)
    )
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
