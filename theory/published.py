"""Numbers printed elsewhere, to be compared with ours."""

from typing import NamedTuple

# Lengths of both tables: 1k … 1M. They do not say whether 1k is 1000 or 1024 tokens; Su's values
# are those of 1024 · 2^k.
LENGTHS = tuple(1024 * 2**k for k in range(11))

# Men et al. 2024 (arXiv 2405.14591), Table 2, head_dim 128.
_MEN = (4.3e3, 1.6e4, 2.7e4, 8.4e4, 3.1e5, 6.4e5, 2.1e6, 7.8e6, 3.6e7, 6.4e7, 5.1e8)
MEN_2024 = dict(zip(LENGTHS, _MEN, strict=True))

# Su 2024, "Transformer upgrade roadmap 18: principles for choosing the base of RoPE".
_SU = (4.3e3, 1.2e4, 2.7e4, 8.4e4, 2.3e5, 6.3e5, 2.1e6, 4.9e6, 2.4e7, 5.8e7, 6.5e7)
SU_2024 = dict(zip(LENGTHS, _SU, strict=True))


class OpenModel(NamedTuple):
    """Published settings of one kind of layer of an open model.

    Attributes:
      name: as on the command line.
      layers: which layers these settings are of.
      rotary: as an expression of `model.rotary`.
      head_dim: features that queries and keys have.
      context_length: tokens the maker says it handles; a sliding window where layers have one.
      source: where the settings stand.
    """

    name: str
    layers: str
    rotary: str
    head_dim: int
    context_length: int
    source: str


_LLAMA_3_1 = "llama3(base=5e5,factor=8,original_context_length=8192)"
# 64 of 192 features are rotated: the decoupled part of multi-head latent attention.
_DEEPSEEK = f"yarn(base=1e4,factor=40,original_context_length=4096,rotary_fraction={1 / 3})"

OPEN_MODELS = (
    OpenModel("llama-2-7b", "all", "rope(base=1e4)", 128, 4096, "meta-llama/Llama-2-7b-hf"),
    OpenModel("llama-3-8b", "all", "rope(base=5e5)", 128, 8192, "meta-llama/Meta-Llama-3-8B"),
    OpenModel("llama-3.1-8b", "all", _LLAMA_3_1, 128, 131072, "meta-llama/Llama-3.1-8B"),
    OpenModel("mistral-7b-v0.2", "all", "rope(base=1e6)", 128, 32768, "mistralai/Mistral-7B-v0.2"),
    OpenModel("qwen2-7b", "all", "rope(base=1e6)", 128, 32768, "Qwen/Qwen2-7B-Instruct"),
    OpenModel(
        "qwen2-7b-yarn",
        "all",
        "yarn(base=1e6,factor=4,original_context_length=32768)",
        128,
        131072,
        "Qwen/Qwen2-7B-Instruct, its model card",
    ),
    OpenModel("gemma-3-4b", "local", "rope(base=1e4)", 256, 1024, "arXiv 2503.19786, Section 2"),
    OpenModel(
        "gemma-3-4b",
        "global",
        "position_interpolation(base=1e6,factor=8)",
        256,
        131072,
        "arXiv 2503.19786, Section 2; google/gemma-3-4b-pt",
    ),
    OpenModel(
        "gpt-neox-20b",
        "all",
        "rope(base=1e4,rotary_fraction=0.25)",
        96,
        2048,
        "EleutherAI/gpt-neox-20b",
    ),
    OpenModel(
        "gpt-j-6b", "all", "rope(base=1e4,rotary_fraction=0.25)", 256, 2048, "EleutherAI/gpt-j-6b"
    ),
    OpenModel("deepseek-v3", "all", _DEEPSEEK, 192, 131072, "arXiv 2412.19437, Section 4.3"),
    OpenModel(
        "smollm3-3b", "three of four", "rope(base=5e6)", 128, 65536, "HuggingFaceTB/SmolLM3-3B"
    ),
    OpenModel("smollm3-3b", "every fourth", "nope", 128, 65536, "HuggingFaceTB/SmolLM3-3B"),
)
