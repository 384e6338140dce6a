"""Runs with random parameters, so that an omitted part changes the logits."""

import dataclasses
from collections.abc import Collection, Iterable
from pathlib import Path

import jax
import numpy as np
import pytest

from ropewalk.configs import find_config
from ropewalk.experiment.checkpoint import leaves_by_name, write_params
from ropewalk.experiment.run import RunDirectory
from ropewalk.interop.tensors import Tensors
from ropewalk.model import transformer
from ropewalk.model.config import MlaConfig, ModelConfig
from ropewalk.model.rotary import parse_pattern
from tests.models import small_model

CONTEXT = 48
PLAIN = small_model(
    vocab_size=96, embed_dim=32, num_layers=3, num_heads=4, num_kv_heads=2, head_dim=16,
    mlp_dim=40, rotary="rope(base=500)", tie_embeddings=False,
)  # fmt: skip
_RANKS = dict(kv_lora_rank=20, q_lora_rank=12, qk_nope_head_dim=16, qk_rope_head_dim=8)
MLA = dataclasses.replace(
    PLAIN, num_kv_heads=None, head_dim=24, norm_epsilon=1e-6, mla=MlaConfig(**_RANKS, v_head_dim=10)
)
EXPLICIT = "explicit(values=(1.7,0.9,0.31,0.2,0.11,0.05,0.013,0.0))"
TWO_KINDS = "[rope(base=100),rope(base=100),rope(base=5000)]"


def changed(config: ModelConfig, rotary: str | None = None, **changes) -> ModelConfig:
    """Return a config with some fields and its variant changed."""
    if rotary is not None:
        changes["rotary"] = parse_pattern(rotary)
    return dataclasses.replace(config, **changes)


def yarn(original: int, more: str = "") -> str:
    return f"yarn(base=500,factor=4,original_context_length={original},{more})"


MSCALES = "mscale=0.9,mscale_all_dim=0.5"
NO_QUERY_LATENT = dataclasses.replace(MLA.mla, q_lora_rank=None)
LLAMA3 = "llama3(base=500,factor=8,original_context_length=24)"
MIXED = "[rope(base=500),nope]"
BASE, HALF = "rope(base=500)", "rotary_fraction=0.5"
SLOW_HALF = f"position_interpolation(base=500,factor=4,{HALF})"
OLMO3 = "yarn(base=500,factor=4,original_context_length=12)"
NEOX = dict(norm="layer", qkv_bias=True, out_bias=True, mlp_bias=True, mlp_gate=False)
NEOX |= dict(activation="gelu", parallel_residual=True, num_kv_heads=None, embed_dim=64)
NEOX_IN_SEQUENCE = NEOX | dict(parallel_residual=False, activation="gelu_tanh")
GEMMA3 = "[rope(base=100),rope(base=100),position_interpolation(base=5000,factor=8)]"
GEMMA = dict(norm="zero_centered_rms", norm_position="both", qk_norm=True, window=(6, 6, None))
GEMMA |= dict(activation="gelu_tanh", scale_embedding=True, scale_dim=24, tie_embeddings=True)
OLMO = dict(norm_position="after", qk_norm=True, qk_norm_across_heads=True)
# Name, model_type, rope_type (None if it differs between layers), rotary (None: plain), changes.
_ROWS: list[tuple[str, str, str | None, str | None, dict]] = [
    ("plain", "llama", "default", None, dict(num_kv_heads=None)),
    ("gqa", "llama", "default", None, {}),
    ("tied", "llama", "default", None, dict(tie_embeddings=True)),
    ("partial", "llama", "longrope", "rope(base=500,rotary_fraction=0.5)", {}),
    ("none", "llama", "longrope", "nope", {}),
    ("pi", "llama", "linear", "position_interpolation(base=500,factor=4)", {}),
    ("ntk", "llama", "default", "ntk_aware(base=500,factor=4)", {}),
    ("yarn", "llama", "yarn", yarn(12, "beta_fast=2,beta_slow=0.25"), {}),
    ("llama 3", "llama", "llama3", LLAMA3, {}),
    ("explicit", "llama", "longrope", EXPLICIT, {}),
    ("window", "mistral", "default", None, dict(window=7)),
    ("window by layer", "ministral", "default", None, dict(window=(7, None, 7))),
    ("biases", "qwen2", "default", None, dict(qkv_bias=True, window=(None, 9))),
    ("qk-norm", "qwen3", "default", None, dict(qk_norm=True)),
    ("nope by layer", "smollm3", "default", MIXED, dict(tie_embeddings=True)),
    ("nope and windows", "smollm3", "default", MIXED, dict(window=(9, None))),
    ("mla", "deepseek_v3", "default", None, {}),
    ("mla without a latent of queries", "deepseek_v3", "default", None, dict(mla=NO_QUERY_LATENT)),
    ("mla with yarn", "deepseek_v3", "yarn", yarn(12, MSCALES), {}),
    ("mla with a vector", "deepseek_v3", "longrope", yarn(20, MSCALES), {}),
    ("olmo 2", "olmo2", "default", None, OLMO),
    ("olmo 3", "olmo3", None, f"[{BASE},{BASE},{OLMO3}]", OLMO | dict(window=(6, 6, None))),
    ("gpt-neox", "gpt_neox", "default", f"rope(base=500,{HALF})", NEOX),
    ("gpt-neox in sequence", "gpt_neox", "linear", SLOW_HALF, NEOX_IN_SEQUENCE),
    ("gemma 3", "gemma3_text", None, GEMMA3, GEMMA),
    ("two bases", "mellum", None, TWO_KINDS, dict(qk_norm=True, window=(6, 6, None))),
]
CASES: dict[str, tuple[str, str | None, ModelConfig]] = {
    name: (kind, rope, changed(MLA if kind == "deepseek_v3" else PLAIN, rotary, **changes))
    for name, kind, rope, rotary, changes in _ROWS
}
QUICK = ("partial", "window by layer", "biases", "nope by layer", "mla with yarn", "olmo 2")


def mark_long(names: Iterable[str], quick: Collection[str] = QUICK) -> list:
    """Return parameters of a test; others than the quick ones are marked long."""
    return [pytest.param(name, marks=[pytest.mark.long] * (name not in quick)) for name in names]


def noise(config: ModelConfig) -> transformer.Params:
    """Return random parameters; norms are not 1 and biases not 0."""
    random = np.random.default_rng(0)

    def draw(path, leaf):
        start = 1.0 if path[-1].key == "scale" else 0.0
        spread = 1.0 if leaf.ndim < 3 else 2.5 / np.sqrt(leaf.shape[1])
        drawn = start + 0.3 * random.normal(size=leaf.shape) * spread
        return np.asarray(drawn, leaf.dtype)

    return jax.tree_util.tree_map_with_path(draw, transformer.abstract_params(config))


def make_run(
    path: Path, model: ModelConfig, context: int = CONTEXT, dtype=np.float32
) -> RunDirectory:
    """Make a run directory with random parameters at step 0."""
    tiny = find_config("tiny")
    data = dataclasses.replace(tiny.data, context_length=context, vocab_size=96)
    config = dataclasses.replace(tiny, name="noise", model=model, data=data)
    run = RunDirectory(path)
    run.write_config(config, ())
    leaves = leaves_by_name(noise(model))
    arrays = ((name, leaf.astype(dtype)) for name, leaf in leaves.items())
    write_params(run, 0, arrays, list(leaves))
    return run


def same_tensors(first: Path, other: Path) -> bool:
    """Return whether two folders have the same tensors, to the bit."""
    mine, theirs = Tensors(first), Tensors(other)
    names = mine.known
    return names == theirs.known and all(
        mine.read(name).tobytes() == theirs.read(name).tobytes() for name in names
    )
