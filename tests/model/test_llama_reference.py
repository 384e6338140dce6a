"""Our logits against transformers' Llama and DeepSeek-V3 (dense layers) for the same weights.

LITERALS are what transformers 5.23 with torch 2.13 gave; weights get our names as in an import.
`tests/interop` compares the two live.
"""

import dataclasses

import jax
import numpy as np
import pytest

from ropewalk.interop.weights import make_entries
from ropewalk.model import rotary, transformer
from ropewalk.model.config import MlaConfig, ModelConfig
from ropewalk.model.rotary.rope import Rope
from tests.models import small_model

V, D, L, N, K, H, F = 96, 32, 2, 4, 2, 8, 48
A, C, P, U = 12, 10, 4, 6  # of MLA: ranks of queries and of keys, rotated features, values
BASE, EPSILON = 500.0, 1e-5
TOKENS = (np.arange(2 * 40).reshape(2, 40) * 37 + 11) % V

LLAMA = small_model(
    vocab_size=V, embed_dim=D, num_layers=L, num_heads=N, num_kv_heads=K, head_dim=H,
    mlp_dim=F, rotary=Rope(base=BASE), norm_epsilon=EPSILON, tie_embeddings=False,
)  # fmt: skip


def make_latent(expression: str, q_lora_rank: int | None) -> ModelConfig:
    mla = MlaConfig(
        kv_lora_rank=C, q_lora_rank=q_lora_rank, qk_nope_head_dim=H, qk_rope_head_dim=P,
        v_head_dim=U,
    )  # fmt: skip
    return dataclasses.replace(
        LLAMA, num_kv_heads=N, head_dim=H + P, norm_epsilon=1e-6, mla=mla,
        rotary=rotary.parse(expression),
    )  # fmt: skip


YARN = "yarn(base=500,factor=4,original_context_length=16,mscale=1.0,mscale_all_dim=1.0)"
MODELS = {
    "llama": LLAMA,
    "llama, tied": dataclasses.replace(LLAMA, tie_embeddings=True),
    "mla": make_latent("rope(base=500)", A),
    "mla, yarn": make_latent(YARN, A),
    "mla, direct queries": make_latent("rope(base=500)", None),
}
# logits[row, position, id], and the sum of all |logits|.
INDICES = [(0, 0, 0), (0, 7, 95), (0, 39, 50), (1, 3, 17), (1, 21, 64), (1, 39, 2)]
LITERALS = {
    "llama": ([-2.956341, 1.931189, 0.2025366, 1.00853, -1.628972, 0.7933886], 11450.059),
    "llama, tied": ([1.240462, -0.4379919, 2.50413, 1.191141, -3.582701, -2.227614], 11269.115),
    "mla": ([-0.373073, 0.8944998, -0.1569581, 1.025546, -2.399329, -2.466932], 11715.827),
    "mla, yarn": ([-0.373073, 0.7128131, -1.576949, 0.8158902, -2.280201, -1.88458], 11686.658),
    "mla, direct queries": (
        [-3.681717, 2.688148, -3.235887, 1.208562, -1.91758, 0.9554591], 11585.709,
    ),
}  # fmt: skip


def huggingface_weights(config: ModelConfig) -> dict[str, np.ndarray]:
    """Weights by transformers' names, `[out, in]`, from numpy's frozen generator."""
    mla, output = config.mla, {"lm_head.weight": (V, D)}
    shapes = {"model.embed_tokens.weight": (V, D), "model.norm.weight": (D,)}
    shapes |= output if mla else {}  # the order of shapes decides the numbers
    attention = {"q_proj": (N * H, D), "k_proj": (K * H, D), "v_proj": (K * H, D)}
    attention |= {"o_proj": (D, N * H)}
    queries = {}
    if mla:
        attention = {"kv_a_proj_with_mqa": (C + P, D), "kv_a_layernorm": (C,)}
        attention |= {"kv_b_proj": (N * (H + U), C), "o_proj": (D, N * U)}
        queries = {"q_proj": (N * (H + P), D)}
        if mla.q_lora_rank:
            queries = {"q_a_proj": (A, D), "q_a_layernorm": (A,), "q_b_proj": (N * (H + P), A)}
    for layer in range(L):
        prefix = f"model.layers.{layer}."
        shapes[f"{prefix}input_layernorm.weight"] = (D,)
        shapes |= {f"{prefix}self_attn.{name}.weight": s for name, s in attention.items()}
        shapes[f"{prefix}post_attention_layernorm.weight"] = (D,)
        mlp = {"gate_proj": (F, D), "up_proj": (F, D), "down_proj": (D, F)}
        shapes |= {f"{prefix}mlp.{name}.weight": shape for name, shape in mlp.items()}
        shapes |= {f"{prefix}self_attn.{name}.weight": shape for name, shape in queries.items()}
    if not config.tie_embeddings:
        shapes |= output
    random = np.random.RandomState(21 if mla else 20)
    weights = {name: 0.3 * random.standard_normal(shape) for name, shape in shapes.items()}
    # Norms near 1, each feature its own: a norm left out or swapped shows.
    weights = {n: 1 + w if "norm" in n else w for n, w in weights.items()}
    return {name: weight.astype(np.float32) for name, weight in weights.items()}


def our_params(config: ModelConfig) -> transformer.Params:
    params, weights = {}, huggingface_weights(config)
    for entry in make_entries(config, "interleaved" if config.mla else "half"):
        layers = [entry.from_hf(weights[name]) for name in entry.names(L)]
        for path, *arrays in zip(entry.ours, *layers, strict=True):
            *folders, name = path.split(".")
            node = params
            for folder in folders:
                node = node.setdefault(folder, {})
            node[name] = np.stack(arrays) if entry.is_stacked else arrays[0]
    return params


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_the_recorded_ones_of_transformers(name):
    config = MODELS[name]
    params = our_params(config)
    shapes = jax.tree.map(lambda x: x.shape, params)
    assert shapes == jax.tree.map(lambda x: x.shape, transformer.abstract_params(config))
    table, (values, absolute_sum) = config.position_table(TOKENS.shape[1]), LITERALS[name]
    logits_BTV = np.asarray(transformer.document_logits(config, params, table, TOKENS))
    np.testing.assert_allclose([logits_BTV[index] for index in INDICES], values, atol=1e-4)
    assert np.abs(logits_BTV.astype(np.float64)).sum() == pytest.approx(absolute_sum, rel=1e-5)
