"""Small models of every kind, and their logits without a cache."""

from typing import Any

import jax
import numpy as np

from ropewalk.model import transformer
from ropewalk.model.config import MlaConfig, ModelConfig
from ropewalk.model.transformer import Params
from tests.models import small_model

V, TRAINED = 96, 64

RANKS = dict(kv_lora_rank=10, q_lora_rank=12, qk_nope_head_dim=8, qk_rope_head_dim=8)

# Windows are smaller than the prompt and the new text, so that rings wrap many times.
STATIC: dict[str, dict[str, Any]] = {
    "many at once": dict(
        rotary="[[rope(base=10),yarn(base=500,factor=4,original_context_length=64,"
        "rotary_fraction=0.5,log_n=train)],rope(base=500)]",
        window=(7, None), shift_keys=True, qk_norm=True, qkv_bias=True, tie_embeddings=False,
        qk_norm_across_heads=True, out_bias=True, mlp_bias=True, mlp_gate=False, activation="gelu",
        norm="layer", norm_position="both", parallel_residual=True, scale_embedding=True,
        scale_dim=5,
    ),
    "polar": dict(scores="pope", window=(7, None), shift_keys=True),
    "hole": dict(num_layers=1, masked_distances=(3, 9)),
    "latent": dict(
        mla=MlaConfig(**RANKS, v_head_dim=6), num_kv_heads=4, window=(7, None),
        rotary="yarn(base=500,factor=4,original_context_length=64)",
    ),
}  # fmt: skip
# Stretched beyond the trained length: one of two heads of the first of two layers.
DYNAMIC: dict[str, Any] = dict(
    rotary=f"[[nope,dynamic_yarn(base=500,original_context_length={TRAINED})],nope]",
    window=9, shift_keys=True,
)  # fmt: skip


def config(**changes: Any) -> ModelConfig:
    """Return a small model; `rotary` is an expression."""
    sizes: dict[str, Any] = dict(
        vocab_size=V, embed_dim=32, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=16,
        mlp_dim=48, rotary="rope(base=500)",
    )  # fmt: skip
    return small_model(**(sizes | changes))


def params(model: ModelConfig) -> Params:
    """Return weights so large that tokens depend on all parameters; vectors are perturbed."""
    random = np.random.default_rng(0)

    def perturb(leaf):
        noise = random.standard_normal(leaf.shape).astype(np.float32)
        is_matrix = leaf.ndim > 2 and np.any(leaf)
        return np.asarray(leaf) * 2 if is_matrix else np.asarray(leaf) + 0.1 * noise

    return jax.tree.map(perturb, transformer.init(model, 3))


def logits(model: ModelConfig, params: Params, ids: list[int], length: int) -> np.ndarray:
    """Return logits `[T, V]` of one forward pass, with the table of rows of `length` tokens."""
    # Padding at the end does not change logits before it.
    tokens_1T = np.zeros((1, -(-len(ids) // 256) * 256), np.int32)
    tokens_1T[0, : len(ids)] = ids
    table = model.position_table(TRAINED, length)
    logits_1TV = transformer.document_logits(model, params, table, tokens_1T)
    return np.asarray(logits_1TV)[0, : len(ids)]
