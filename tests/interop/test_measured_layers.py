"""Audits against rotary modules run by hand, attributes of attention, and attention weights."""

import contextlib
from collections import Counter

import numpy as np
import pytest

measure = pytest.importorskip("ropewalk.interop.measured_layers").measure
pytestmark = pytest.mark.hf
SMALL = dict(hidden_size=32, num_attention_heads=4, num_hidden_layers=4, vocab_size=64)
SMALL |= dict(intermediate_size=32, num_key_value_heads=2, max_position_embeddings=64)


def vectors(config, model):
    """Frequencies above 0 and squared scalings of the rotary classes of a model, made by hand."""
    import torch

    classes = {
        type(module): module
        for module in model.modules()
        if any("inv_freq" in name for name, _ in module.named_buffers(recurse=False))
    }
    result = []
    for cls in classes:
        module = cls(config)
        with contextlib.suppress(Exception):  # dynamic types choose by the largest position
            module(torch.zeros(1), torch.tensor([[config.max_position_embeddings - 1]]))
        for name, buffer in module.named_buffers():
            if name.endswith("inv_freq") and "original" not in name:
                scaling = name.replace("inv_freq", "attention_scaling")
                inv_freq = buffer.double().numpy()
                result.append((inv_freq[inv_freq > 0], getattr(module, scaling) ** 2))
    return result


def attentions(model, number):
    """Attention modules of a layer, without their projections."""
    for module in model.modules():
        has_scaling = isinstance(getattr(module, "scaling", None), float)
        if has_scaling and getattr(module, "layer_idx", None) == number:
            yield module


def check(config, published):
    import torch
    import transformers

    with torch.device("meta"):
        model = transformers.AutoModel.from_config(config)
    labels = getattr(config, "layer_types", None)
    by_hand = vectors(config, model)
    sizes = {"sliding_attention": "sliding_window", "chunked_attention": "attention_chunk_size"}
    for group in published.groups:
        if group.inv_freq.size:
            turning = group.inv_freq[group.inv_freq > 0]
            same = [
                (v.shape == turning.shape and np.allclose(turning, v, rtol=1e-6), s)
                for v, s in by_hand
            ]
            scales = [scale for is_same, scale in same if is_same]
            assert scales, "inv_freq"
            ratio = group.scales.rotated / group.scales.unrotated
            assert any(ratio == pytest.approx(scale, rel=1e-5) for scale in scales), "scaling"
        assert group.window == getattr(config, sizes.get(group.kind, ""), None), "window"
        for number in group.layers:
            if labels and labels[number] != "attention":
                assert group.kind == labels[number], "kind"
            scalings = [module.scaling for module in attentions(model, number)]
            scaling = group.scales.unrotated / group.head_dim**0.5
            assert not scalings or any(scaling == pytest.approx(x) for x in scalings), "factor"


@pytest.mark.long
def test_audits_of_all_causal_language_models_agree_with_transformers(capsys):
    import transformers
    from transformers.models.auto import modeling_auto

    tally, refused, wrong = Counter(), [], []
    for model_type in sorted(modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES):
        try:
            config = transformers.CONFIG_MAPPING[model_type]().get_text_config()
        except Exception:  # transformers refuses its own default, or it has no text model
            tally["no default config"] += 1
            continue
        try:
            published = measure(config.to_dict())
        except ValueError:
            refused.append(model_type)
            continue
        if not any(group.inv_freq.size for group in published.groups):
            tally["no rotation: refused"] += 1
            continue
        try:
            check(config, published)
            tally["agree"] += 1
        except AssertionError as error:
            wrong.append(f"{model_type}: {error}")
    with capsys.disabled():
        print(f"\n{dict(tally)}, refused: {len(refused)} ({', '.join(refused)})")
    assert not wrong, "\n".join(wrong)
    assert tally["agree"] >= 90


WINDOWS = {
    "mistral": dict(sliding_window=3),  # in every layer, like starcoder2 and phimoe
    "qwen3": dict(sliding_window=3, use_sliding_window=True, max_window_layers=2, head_dim=8),
    "llama4_text": dict(attention_chunk_size=3, head_dim=8, num_local_experts=2),
    "cohere2": dict(sliding_window=3),
}


@pytest.mark.parametrize("model_type", WINDOWS)
def test_windows_are_those_of_the_weights_of_attention(model_type):
    """A query attends to `window` tokens: those before it, or those of its chunk."""
    torch = pytest.importorskip("torch")
    import transformers

    sizes = SMALL | WINDOWS[model_type]
    config = transformers.AutoConfig.for_model(model_type, **sizes, pad_token_id=0)
    model = transformers.AutoModel.from_config(config, attn_implementation="eager").eval()
    T = 8
    weights = model(torch.arange(1, T + 1)[None], output_attentions=True).attentions
    groups = measure(config.to_dict()).groups
    query, key = np.arange(T)[:, None], np.arange(T)
    for group in groups:
        window = group.window or T
        is_chunk = group.kind == "chunked_attention"
        near = key // window == query // window if is_chunk else key > query - window
        for number in group.layers:
            weights_TT = weights[number][0, 0].detach().numpy()
            np.testing.assert_array_equal(weights_TT > 0, near & (key <= query))
    assert {group.window for group in groups} == {3, *[None] * (model_type != "mistral")}


def test_a_factor_of_queries_that_depends_on_their_position_is_reported():
    """Ministral 3: 1 + 0.1 ln(1 + floor(p / 16384)) at the last position.

    Llama 4: 1 + 0.1 ln(1 + floor((p + 1) / 8192)) in layers without rotation, which count the
    tokens instead of reading position_ids.
    """
    model = measure({"model_type": "ministral3", "max_position_embeddings": 262144})
    expected = 1 + 0.1 * np.log(1 + 262143 // 16384)
    assert model.groups[0].query_scale == f"{expected:.6g} at position 262,143"
    config = SMALL | {"model_type": "llama4_text", "head_dim": 8, "num_local_experts": 2}
    rotated, plain = measure(config | {"max_position_embeddings": 131072, "pad_token_id": 0}).groups
    expected = 1 + 0.1 * np.log(1 + 131072 // 8192)
    assert plain.query_scale == f"{expected:.6g} at position 131,071"
    assert (rotated.query_scale, plain.inv_freq.size) == ("", 0)


LINEAR = {"type": "linear", "factor": 8.0}
HALF = {"rope_type": "linear", "factor": 2.0}
BY_LAYER = {"full_attention": {"rope_type": "default", "rope_theta": 1e6}}


@pytest.mark.parametrize(
    ("model_type", "changes", "message"),
    [
        ("gemma3_text", {"rope_scaling": LINEAR}, "type='linear' is not used"),
        ("mimo_v2_flash", {"rope_theta": 1e7}, "rope_theta=10000000.0 is not used.* has 5000000.0"),
        ("llama", {"rope_parameters": BY_LAYER}, "rope_theta=1000000.0 is not used"),
        ("llama", {"rope_scaling": LINEAR, "rope_parameters": HALF}, "factor=2.0 is not.* has 8.0"),
        ("stablelm", {"rope_pct": 0.5}, "rope_pct=0.5 is not used.* has 0.25"),
        ("minimax", {"rotary_dim": 4}, "rotary_dim=4 is not used.* has 8"),
    ],
)
def test_a_rotation_of_config_json_that_the_class_ignores_is_refused(model_type, changes, message):
    """Gemma 3 reads rope_type only; MiMo's remote code reads rope_theta; Llama has one rotation.

    MiniMax's own code rotates rotary_dim features.
    """
    config = SMALL | {"model_type": model_type, "pad_token_id": 0, "head_dim": 8, "n_group": 1}
    config |= {"n_routed_experts": 8, "num_experts_per_tok": 2, "topk_group": 1}
    measure(config)
    with pytest.raises(ValueError, match=message):
        measure(config | changes)
