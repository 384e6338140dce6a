"""config.json of published models, against their published numbers of parameters."""

import json

import numpy as np
import pytest

from ropewalk.interop.architectures import ARCHITECTURES, make_config
from ropewalk.interop.export import export
from ropewalk.interop.hf_config import parse_config
from ropewalk.interop.importing import import_folder
from ropewalk.interop.layers import imported_layers
from ropewalk.model.rotary import label
from ropewalk.model.transformer import count_params
from tests.interop.weights_helpers import CASES, CONTEXT, PLAIN, changed, make_run


def config(sizes: tuple[int, ...], **more):
    names = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")
    names += ("num_key_value_heads", "intermediate_size", "max_position_embeddings")
    return {"hidden_act": "silu", **dict(zip(names, sizes, strict=True)), **more}


SCALED = {
    "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192, "rope_type": "llama3",
}  # fmt: skip
OLMO3 = {
    "rope_type": "yarn", "factor": 8.0, "attention_factor": 1.2079441541679836, "beta_fast": 32,
    "beta_slow": 1, "original_max_position_embeddings": 8192,
}  # fmt: skip
# As in the files that version 4 wrote; what decides nothing is left out.
MODELS = {
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
    "SmolLM3-3B": (
        config((128256, 2048, 36, 16, 4, 11008, 65536), model_type="smollm3", rms_norm_eps=1e-6)
        | {"rope_theta": 5000000.0, "no_rope_layers": 9 * [1, 1, 1, 0], "sliding_window": None}
        | {"layer_types": 36 * ["full_attention"], "use_sliding_window": False},
        3_075_098_624,
        "[rope(base=5e+06),rope(base=5e+06),rope(base=5e+06),nope]",
    ),
    "Olmo-3-1025-7B": (
        config((100278, 4096, 32, 32, 32, 11008, 65536), model_type="olmo3", rms_norm_eps=1e-6)
        | {"rope_theta": 500000, "rope_scaling": OLMO3, "sliding_window": 4096},
        7_298_011_136,
        f"[{','.join(3 * ['rope(base=500000)'])},"
        "yarn(base=500000,factor=8,original_context_length=8192)]",
    ),
    "pythia-1.4b": (
        config((50304, 2048, 24, 16, 16, 8192, 2048), model_type="gpt_neox", layer_norm_eps=1e-5)
        | {"hidden_act": "gelu", "rotary_pct": 0.25, "rotary_emb_base": 10000}
        | {"use_parallel_residual": True, "tie_word_embeddings": False},
        1_414_647_808,  # the paper's Table 1: 1,208,602,624 without the embeddings
        "rope(base=10000,rotary_fraction=0.25)",
    ),
    "gemma-3-1b-pt": (
        config((262144, 1152, 26, 4, 1, 6912, 32768), model_type="gemma3_text", head_dim=256)
        | {"hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 256}
        | {"rope_theta": 1000000, "rope_local_base_freq": 10000, "sliding_window": 512}
        | {"rms_norm_eps": 1e-6, "sliding_window_pattern": 6, "rope_scaling": None},
        999_885_952,
        f"[{','.join(5 * ['rope(base=10000)'])},rope(base=1000000)]",
    ),
}
# The language model of gemma-3-27b: linear scaling of layers without a window, and another divisor.
GEMMA_27B = config((262208, 5376, 62, 32, 16, 21504, 131072), model_type="gemma3_text")
GEMMA_27B |= {"head_dim": 128, "query_pre_attn_scalar": 168, "sliding_window": 1024}
GEMMA_27B |= {"rope_scaling": {"factor": 8.0, "rope_type": "linear"}}
GEMMA_27B["hidden_act"] = None
WINDOWS = {"Mistral-7B-v0.1": 4096, "Olmo-3-1025-7B": (4096, 4096, 4096, None)}
WINDOWS["gemma-3-1b-pt"] = (*5 * (512,), None)


@pytest.mark.parametrize("name", MODELS)
def test_published_configs(name):
    hf_config, parameters, rotary = MODELS[name]
    result = parse_config(hf_config, name)
    assert count_params(result.model)["total"] == parameters
    assert label(result.model.rotary) == rotary
    assert result.context == hf_config["max_position_embeddings"]
    assert result.model.window == WINDOWS.get(name)


def test_gemma_27b():
    """Its divisor of q·k is hidden_size / heads, not head_dim; only full layers are slower."""
    model = parse_config(GEMMA_27B, "gemma").model
    assert model.logit_divisor == 168**0.5
    slowed = "position_interpolation(base=1e+06,factor=8)"
    assert label(model.rotary) == f"[{','.join(5 * ['rope(base=10000)'])},{slowed}]"


@pytest.mark.hf
@pytest.mark.parametrize("model_type", sorted({*ARCHITECTURES} - {"deepseek_v3"}))
def test_missing_keys_have_the_values_of_the_class(model_type):
    """Mistral's and Qwen's classes have 8 and 32 key-value heads, whatever the number of heads."""
    transformers = pytest.importorskip("transformers")
    sizes = dict(vocab_size=96, hidden_size=2048, num_hidden_layers=2, num_attention_heads=32)
    sizes |= dict(intermediate_size=96, max_position_embeddings=64)
    sizes |= dict(mlp_layer_types=["dense"] * 2) if model_type == "mellum" else {}
    expected = transformers.CONFIG_MAPPING[model_type](**sizes)
    model = parse_config({"model_type": model_type, **sizes}, "model").model
    assert model.kv_heads == getattr(expected, "num_key_value_heads", 32)
    assert model.head_dim == (getattr(expected, "head_dim", None) or 64)
    assert model.tie_embeddings == expected.tie_word_embeddings
    epsilon = "layer_norm_eps" if model_type == "gpt_neox" else "rms_norm_eps"
    assert model.norm_epsilon == getattr(expected, epsilon)
    # Unlike a key that is missing, null means as many as heads.
    null = {"model_type": model_type, "num_key_value_heads": None, **sizes}
    assert parse_config(null, "model").model.kv_heads == 32


SIZES = config((96, 64, 4, 4, 2, 96, 64))
FLAT = {"type": "linear", "rope_theta": 500.0, "factor": 4.0}
LISTS = {"type": "longrope", "short_factor": 8 * [1.0], "long_factor": 8 * [2.0]}
ALL_SLIDE = {"layer_types": 4 * ["sliding_attention"], "sliding_window": 8}
BOTH = {"rope_scaling": {"type": "linear", "factor": 4.0}, "rope_parameters": FLAT}
TWO_LENGTHS = {"rope_scaling": LISTS | {"original_max_position_embeddings": 32}}
TWO_LENGTHS |= {"original_max_position_embeddings": 16}


@pytest.mark.parametrize(
    ("model_type", "keys", "message"),
    [
        # Features that no model of ours has.
        ("gpt_neox", {"hidden_act": "relu"}, "hidden_act='relu' .* allowed are gelu"),
        ("olmo2", {"attention_bias": True}, "attention_bias=True is not supported"),
        ("gemma3_text", {"final_logit_softcapping": 30.0}, "final_logit_softcapping=30"),
        # What transformers reads in another way, or not at all.
        ("gemma3_text", {"rope_parameters": FLAT}, "an object for each type of layer"),
        ("llama", BOTH, "rope_theta is None, and in rope_parameters 500.0; make them agree"),
        ("phi3", {"rope_scaling": FLAT}, "rope_type='linear' is not supported: not read for"),
        ("llama", {"rope_scaling": LISTS | {"type": "su"}}, "rope_type 'su' is not supported"),
        ("gpt_neox", {"head_dim": 8}, "head_dim=8 is not supported: must be 16"),
        ("qwen2", ALL_SLIDE, "lacks 'sliding_window', which layer_types requires"),
        ("llama", TWO_LENGTHS, r"original_max_\w+ is 16, and in rope_scaling 32; make them agree"),
    ],
)
def test_what_a_model_of_ours_cannot_be_is_refused(model_type, keys, message):
    activations = {"hidden_activation": "gelu_pytorch_tanh"}
    activations |= {"hidden_act": "gelu"} if model_type == "gpt_neox" else {}
    with pytest.raises(ValueError, match=message):
        parse_config(SIZES | {"model_type": model_type} | activations | keys, "model")


PHI_4_MINI = config((200064, 3072, 32, 24, 8, 8192, 131072), model_type="phi3", rms_norm_eps=1e-5)
PHI_4_MINI |= {"original_max_position_embeddings": 4096, "partial_rotary_factor": 0.75}
PHI_4_MINI |= {"rope_theta": 10000.0, "sliding_window": 262144, "tie_word_embeddings": True}
LONG = np.linspace(1.0, 40.0, 48).tolist()
PHI_4_MINI["rope_scaling"] = LISTS | {"short_factor": 48 * [1.0], "long_factor": LONG}


def test_context_selects_the_list_of_phi_4_mini():
    full, short = parse_config(PHI_4_MINI, "phi"), parse_config(PHI_4_MINI, "phi", 4096)
    assert count_params(full.model)["total"] == 3_836_021_760
    assert full.model.rotary.pair_factors == tuple(LONG) and full.context == 131_072
    assert short.model.rotary.pair_factors == (1.0,) * 48 and short.context == 4096
    for result in (full, short):
        # sqrt(1 + ln 32 / ln 4096) on cosines and sines of the part that rotates.
        assert result.model.rotary.logit_scale == pytest.approx(1 + 5 / 12)
        assert result.model.rotary.unrotated_logit_scale == 1
        assert (result.model.rotary.inv_freq(128) > 0).sum() == 48


SLIDES = {"layer_types": 2 * ["sliding_attention", "full_attention"], "sliding_window": 9}
DENSE = {"model_type": "mellum", "mlp_layer_types": 4 * ["dense"]}


def test_rope_parameters_by_type_of_layer_are_audited_without_transformers():
    """Version 5 of transformers writes rope parameters by kind of layer."""
    ropes = {"sliding_attention": {"rope_theta": 1e4}, "full_attention": {"rope_theta": 1e6}}
    model = imported_layers(SIZES | SLIDES | DENSE | {"rope_parameters": ropes, "head_dim": 16})
    for group, base, layers in zip(model.groups, (1e4, 1e6), ((0, 2), (1, 3)), strict=True):
        assert group.layers == layers
        np.testing.assert_allclose(group.inv_freq, base ** -(np.arange(8) / 8), rtol=1e-12)


# Keys that a class reads in its own way, or ignores.
YARN = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0}
NULLS = YARN | {"truncate": None, "attention_factor": None}  # false, and the default
ALTERNATING = SIZES | {"model_type": "mistral", "head_dim": 16} | SLIDES
ODD = [
    ALTERNATING,
    SIZES
    | {"model_type": "gemma3_text", "original_max_position_embeddings": 12}
    | {"rope_parameters": dict.fromkeys(("full_attention", "sliding_attention"), YARN)},
    SIZES | SLIDES | DENSE,
    SIZES | {"model_type": "smollm3"} | SLIDES,
    SIZES | {"model_type": "olmo3", "sliding_window_pattern": 2, "sliding_window": 9},
    SIZES | {"model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 0},
    SIZES | {"model_type": "mistral", "sliding_window": 1000},
    SIZES | {"model_type": "phi3", "head_dim": 32},
    SIZES | {"model_type": "gpt_neox", "hidden_act": "gelu", "rotary_emb_base": 500},
    SIZES | {"model_type": "phi3", "rope_scaling": LISTS, "original_max_position_embeddings": 16},
    SIZES | {"model_type": "llama", "rope_scaling": NULLS, "original_max_position_embeddings": 12},
]


def test_a_mistral_with_types_of_layers_is_a_ministral():
    """So says transformers' AutoConfig."""
    assert parse_config(ALTERNATING, "model").model.window == (9, None)


# Gemma's class makes a mask with a window even if no layer has one.
NO_WINDOW = changed(CASES["gemma 3"][2], "rope(base=500)", window=None)
ODD.append(make_config(ARCHITECTURES["gemma3_text"], NO_WINDOW, CONTEXT))


@pytest.mark.hf
@pytest.mark.parametrize(
    "hf_config", [*(model[0] for model in MODELS.values()), GEMMA_27B, PHI_4_MINI, *ODD]
)
def test_the_import_and_transformers_read_the_same_rotation(hf_config):
    measure = pytest.importorskip("ropewalk.interop.measured_layers").measure
    hf_config = {"pad_token_id": 0, **hf_config}
    ours, theirs = (read(hf_config).groups for read in (imported_layers, measure))
    assert [group.layers for group in ours] == [group.layers for group in theirs]
    for a, b in zip(ours, theirs, strict=True):
        assert (a.kind, a.window, a.head_dim) == (b.kind, b.window, b.head_dim)
        assert a.rope.get("rope_theta") == b.rope.get("rope_theta")
        np.testing.assert_allclose(a.inv_freq, b.inv_freq, rtol=1e-6)
        np.testing.assert_allclose(a.scales, b.scales, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "value"), [("is_causal", False), ("clip_qkv", 8.0)])
def test_a_key_that_nothing_reads_is_refused_where_logits_are_not_compared(name, value, tmp_path):
    """A causal import of an encoder had logits that were off by 9."""
    export(make_run(tmp_path / "run", changed(PLAIN, num_layers=1)).path, tmp_path / "out")
    path = tmp_path / "out/config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: value}))
    with pytest.raises(ValueError, match=rf"{name}={value} is not (read|supported)"):
        import_folder(tmp_path / "out", tmp_path / "back")
    assert not list(tmp_path.glob("back*"))


@pytest.mark.parametrize("name", MODELS)
def test_all_keys_of_published_configs_are_known(name):
    more = {"bos_token_id": 1, "torch_dtype": "float16", "use_cache": True, "is_causal": True}
    assert parse_config(MODELS[name][0] | more, name).unread == ()
