"""config.json of published models, against their published numbers of parameters."""

import numpy as np
import pytest

from interop.hf_config import parse_config
from model.rotary import label
from model.transformer import count_params


def config(sizes: tuple[int, ...], **more):
    names = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")
    names += ("num_key_value_heads", "intermediate_size", "max_position_embeddings")
    return {"hidden_act": "silu", **dict(zip(names, sizes, strict=True)), **more}


SCALED = {
    "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192, "rope_type": "llama3",
}  # fmt: skip
# As in the files that version 4 wrote; what decides nothing is left out.
MODELS = {
    "Llama-2-7b-hf": (
        config((32000, 4096, 32, 32, 32, 11008, 4096), model_type="llama", rms_norm_eps=1e-5)
        | {"pretraining_tp": 1, "rope_scaling": None, "tie_word_embeddings": False},
        6_738_415_616,
        "rope(base=10000)",
    ),
    "Meta-Llama-3-8B": (
        config((128256, 4096, 32, 32, 8, 14336, 8192), model_type="llama", rms_norm_eps=1e-5)
        | {"rope_theta": 500000.0, "tie_word_embeddings": False, "attention_bias": False},
        8_030_261_248,
        "rope(base=500000)",
    ),
    "Llama-3.1-8B": (
        config((128256, 4096, 32, 32, 8, 14336, 131072), model_type="llama", rms_norm_eps=1e-5)
        | {"rope_theta": 500000.0, "rope_scaling": SCALED, "tie_word_embeddings": False}
        | {"mlp_bias": False},
        8_030_261_248,
        "llama3(base=500000,factor=8,original_context_length=8192)",
    ),
    "Llama-3.2-1B": (
        config((128256, 2048, 16, 32, 8, 8192, 131072), model_type="llama", rms_norm_eps=1e-5)
        | {"rope_theta": 500000.0, "rope_scaling": {**SCALED, "factor": 32.0}, "head_dim": 64}
        | {"tie_word_embeddings": True},
        1_235_814_400,
        "llama3(base=500000,factor=32,original_context_length=8192)",
    ),
    "Mistral-7B-v0.1": (
        config((32000, 4096, 32, 32, 8, 14336, 32768), model_type="mistral", rms_norm_eps=1e-5)
        | {"rope_theta": 10000.0, "sliding_window": 4096, "tie_word_embeddings": False},
        7_241_732_096,
        "rope(base=10000)",
    ),
    "Qwen2-7B": (
        config((152064, 3584, 28, 28, 4, 18944, 131072), model_type="qwen2", rms_norm_eps=1e-6)
        | {"rope_theta": 1000000.0, "sliding_window": 131072, "use_sliding_window": False}
        | {"max_window_layers": 28, "tie_word_embeddings": False},
        7_615_616_512,
        "rope(base=1e+06)",
    ),
    "Qwen3-8B": (
        config((151936, 4096, 36, 32, 8, 12288, 40960), model_type="qwen3", rms_norm_eps=1e-6)
        | {"rope_theta": 1000000, "rope_scaling": None, "head_dim": 128, "max_window_layers": 36}
        | {"use_sliding_window": False, "sliding_window": None, "attention_bias": False}
        | {"tie_word_embeddings": False},
        8_190_735_360,
        "rope(base=1000000)",
    ),
    "SmolLM3-3B": (
        config((128256, 2048, 36, 16, 4, 11008, 65536), model_type="smollm3", rms_norm_eps=1e-6)
        | {"rope_theta": 5000000.0, "no_rope_layers": 9 * [1, 1, 1, 0], "sliding_window": None}
        | {"layer_types": 36 * ["full_attention"], "use_sliding_window": False},
        3_075_098_624,
        "[rope(base=5e+06),rope(base=5e+06),rope(base=5e+06),nope]",
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_published_configs(name):
    hf_config, parameters, rotary = MODELS[name]
    result = parse_config(hf_config, name)
    assert count_params(result.model)["total"] == parameters
    assert label(result.model.rotary) == rotary
    assert result.context == hf_config["max_position_embeddings"]
    assert result.model.window == (4096 if "Mistral" in name else None)


def test_context_selects_the_list_of_phi_4_mini():
    long = np.linspace(1.0, 40.0, 48).tolist()
    hf_config = config(
        (200064, 3072, 32, 24, 8, 8192, 131072), model_type="phi3", rms_norm_eps=1e-5
    )
    hf_config |= {"original_max_position_embeddings": 4096, "partial_rotary_factor": 0.75}
    hf_config |= {"rope_theta": 10000.0, "sliding_window": 262144, "tie_word_embeddings": True}
    hf_config |= {
        "rope_scaling": {"type": "longrope", "short_factor": 48 * [1.0], "long_factor": long}
    }
    hf_config |= {"attention_bias": False, "mlp_bias": False, "embd_pdrop": 0.0}
    full, short = parse_config(hf_config, "phi"), parse_config(hf_config, "phi", 4096)
    assert count_params(full.model)["total"] == 3_836_021_760
    assert full.model.rotary.pair_factors == tuple(long) and full.context == 131_072
    assert short.model.rotary.pair_factors == (1.0,) * 48 and short.context == 4096
    for result in (full, short):
        # sqrt(1 + ln 32 / ln 4096) on cosines and sines of the part that rotates.
        assert result.model.rotary.logit_scale == pytest.approx(1 + 5 / 12)
        assert result.model.rotary.unrotated_logit_scale == 1
        assert (result.model.rotary.inv_freq(128) > 0).sum() == 48
