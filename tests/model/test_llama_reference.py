"""Our logits against transformers' LlamaForCausalLM for the same weights.

LITERALS are what transformers 5.23 with torch 2.13 gave. `tests/interop` compares the two live.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from model import transformer
from model.rotary.rope import Rope
from tests.models import small_model

V, D, L, N, K, H, F = 96, 32, 2, 4, 2, 8, 48
BASE, EPSILON = 500.0, 1e-5
TOKENS = (np.arange(2 * 40).reshape(2, 40) * 37 + 11) % V

# logits[row, position, id], and the sum of all |logits|, by whether embeddings are tied.
INDICES = [(0, 0, 0), (0, 7, 95), (0, 39, 50), (1, 3, 17), (1, 21, 64), (1, 39, 2)]
LITERALS = {
    False: ([-2.956341, 1.931189, 0.2025366, 1.00853, -1.628972, 0.7933886], 11450.059),
    True: ([1.240462, -0.4379919, 2.50413, 1.191141, -3.582701, -2.227614], 11269.115),
}


def huggingface_weights(tied: bool) -> dict[str, np.ndarray]:
    """Weights by transformers' names, `[out, in]`, from numpy's frozen generator."""
    random = np.random.RandomState(20)
    shapes = {"model.embed_tokens.weight": (V, D), "model.norm.weight": (D,)}
    for layer in range(L):
        prefix = f"model.layers.{layer}."
        shapes |= {
            prefix + "input_layernorm.weight": (D,),
            prefix + "self_attn.q_proj.weight": (N * H, D),
            prefix + "self_attn.k_proj.weight": (K * H, D),
            prefix + "self_attn.v_proj.weight": (K * H, D),
            prefix + "self_attn.o_proj.weight": (D, N * H),
            prefix + "post_attention_layernorm.weight": (D,),
            prefix + "mlp.gate_proj.weight": (F, D),
            prefix + "mlp.up_proj.weight": (F, D),
            prefix + "mlp.down_proj.weight": (D, F),
        }
    if not tied:
        shapes["lm_head.weight"] = (V, D)
    weights = {name: 0.3 * random.standard_normal(shape) for name, shape in shapes.items()}
    # Norms near 1, each feature its own: a norm left out or swapped shows.
    weights = {n: 1 + w if "norm" in n else w for n, w in weights.items()}
    return {name: weight.astype(np.float32) for name, weight in weights.items()}


def our_params(weights: dict[str, np.ndarray]) -> transformer.Params:
    def stacked(name: str) -> list[np.ndarray]:
        return [weights[f"model.layers.{layer}.{name}.weight"] for layer in range(L)]

    def heads_out(name: str, heads: int) -> jax.Array:
        return jnp.stack([w.reshape(heads, H, D).transpose(2, 0, 1) for w in stacked(name)])

    def transposed(name: str) -> jax.Array:
        return jnp.stack([w.T for w in stacked(name)])

    params = {
        "embedding": jnp.asarray(weights["model.embed_tokens.weight"]),
        "final_norm": {"scale": jnp.asarray(weights["model.norm.weight"])},
        "blocks": {
            "attention_norm": {"scale": jnp.stack(stacked("input_layernorm"))},
            "attention": {
                "query": heads_out("self_attn.q_proj", N),
                "key": heads_out("self_attn.k_proj", K),
                "value": heads_out("self_attn.v_proj", K),
                "out": transposed("self_attn.o_proj").reshape(L, N, H, D),
            },
            "mlp_norm": {"scale": jnp.stack(stacked("post_attention_layernorm"))},
            "mlp": {
                "gate": transposed("mlp.gate_proj"),
                "up": transposed("mlp.up_proj"),
                "down": transposed("mlp.down_proj"),
            },
        },
    }
    if "lm_head.weight" in weights:
        params["output"] = jnp.asarray(weights["lm_head.weight"])
    return params


def our_logits(tied: bool) -> np.ndarray:
    config = small_model(
        vocab_size=V, embed_dim=D, num_layers=L, num_heads=N, num_kv_heads=K, head_dim=H,
        mlp_dim=F, rotary=Rope(base=BASE), norm_epsilon=EPSILON, tie_embeddings=tied,
    )  # fmt: skip
    params = our_params(huggingface_weights(tied))
    shapes = jax.tree.map(lambda x: x.shape, params)
    assert shapes == jax.tree.map(lambda x: x.shape, transformer.abstract_params(config))
    B, T = TOKENS.shape
    hidden_BTD = transformer.hidden(
        config, params, config.position_table(T), jnp.asarray(TOKENS),
        jnp.tile(jnp.arange(T), (B, 1)), jnp.ones((B, T), jnp.int32),
    )  # fmt: skip
    return np.asarray(transformer.unembed(config, params, hidden_BTD))


def transformers_model(tied: bool, length: int):
    """Its LlamaForCausalLM with the weights above, for rows of `length` ids."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=V, hidden_size=D, intermediate_size=F, num_hidden_layers=L,
        num_attention_heads=N, num_key_value_heads=K, head_dim=H, rms_norm_eps=EPSILON,
        rope_parameters={"rope_type": "default", "rope_theta": BASE}, tie_word_embeddings=tied,
        max_position_embeddings=length,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    weights = {name: torch.from_numpy(w) for name, w in huggingface_weights(tied).items()}
    if tied:
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    model.load_state_dict(weights)
    return model


@pytest.mark.parametrize("tied", [False, True])
def test_logits_are_the_recorded_ones_of_transformers(tied):
    logits_BTV = our_logits(tied)
    values, absolute_sum = LITERALS[tied]
    np.testing.assert_allclose([logits_BTV[index] for index in INDICES], values, atol=1e-4)
    assert np.abs(logits_BTV.astype(np.float64)).sum() == pytest.approx(absolute_sum, rel=1e-5)
