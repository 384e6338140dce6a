"""Facts of audits against published numbers."""

import json
import math

import numpy as np
import pytest

from ropewalk.theory.audit import as_text, audit, read_layers, read_model
from ropewalk.utils.messages import printable

FOLDER = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, "vocab_size": 32000,
    "num_attention_heads": 32, "num_hidden_layers": 2, "max_position_embeddings": 8192,
}  # fmt: skip
# 48 factors for 96 of 128 features; a reader that rotates all of them stops.
FACTORS = {"short_factor": [1.0] * 48, "long_factor": [1.0 + 0.25 * i for i in range(48)]}
YARN = dict(rope_type="yarn", factor=32.0, original_max_position_embeddings=4096, truncate=False)
OLMO = dict(rope_type="yarn", factor=8.0, original_max_position_embeddings=8192)
LONG = {"max_position_embeddings": 131_072}
SMOLLM2 = FOLDER | dict(head_dim=64, rope_theta=1e5)


def series(base, dim):
    return [base ** (-2 * i / dim) for i in range(dim // 2)]


def test_temperatures():
    """gpt-oss: (0.1 ln 32 + 1)^2."""
    gpt = FOLDER | LONG | dict(head_dim=64, rope_theta=150_000.0, rope_scaling=YARN)
    (group,) = audit(read_layers(gpt))["groups"]
    assert group["logit_scale"] == pytest.approx((0.1 * math.log(32) + 1) ** 2)


def test_facts_of_smollm2():
    """B_m < 0 from 3,616 tokens on, and 8,192 tokens need a base of 323,744."""
    (group,) = audit(read_layers(SMOLLM2))["groups"]
    assert group["first_violation"] == 3616 and not group["covers"]
    assert group["smallest_base"] == pytest.approx(323_744.127, abs=0.01)
    # Liu et al. 2023: 2 ceil(32 log_1e5(8192 / 2π)) = 40, rounded down to complete cycles.
    assert group["critical_dimension"] == 40
    assert group["slowest_periods"][0] == pytest.approx(2 * math.pi * 1e5 ** (31 / 32))


@pytest.mark.parametrize(("head_dim", "first"), [(2, 2), (4, 22)])
def test_heads_of_one_or_two_pairs_have_no_smallest_base(head_dim, first):
    """cos 2 < 0, and cos m + cos(m / 100) is first negative at 22: -.99996 + .97590."""
    config = FOLDER | {"hidden_size": 32 * head_dim, "max_position_embeddings": 4096}
    (group,) = audit(read_layers(config))["groups"]
    assert group["smallest_base"] is None and group["first_violation"] == first


def test_a_pair_that_rotates_backwards_has_a_positive_period():
    model = read_layers(SMOLLM2)
    (group,) = model.groups
    backwards = model._replace(groups=(group._replace(inv_freq=-group.inv_freq),))
    (forward,), (facts,) = audit(model)["groups"], audit(backwards)["groups"]
    for name in ("slowest_periods", "critical_dimension", "never_complete"):
        assert facts[name] == forward[name]


def test_names_of_a_config_are_neither_markup_nor_control_characters():
    model = read_layers(FOLDER)
    (group,) = model.groups
    group = group._replace(kind="[/red]\x1b[2J")
    text = as_text(audit(model._replace(model_type="[/x]:x:\x1b", groups=(group,))), "\x07name")
    assert printable(text) == text and "[/x]:x:" in text and "[/red]" in text


@pytest.mark.parametrize("is_installed", [False, pytest.param(True, marks=pytest.mark.hf)])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_layers": 10**9}, "num_hidden_layers must be a whole number"),
        ({"rope_scaling": {"rope_type": "yern", "factor": 2.0}}, "yern"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "factor"),
        ({"rope_scaling": 3}, "config.json"),
        ({"rope_scaling": {"type": "linear", "factor": 0}}, "factor must be a finite number"),
        ({"rope_theta": "10000"}, "rope_theta must be a finite number"),
        ({"head_dim": 127}, "config.json"),
        ({"model_type": "gemma3"}, "multimodal"),
        ({"model_type": "gpt2"}, "model_type.*'gpt2'"),
        ({"model_type": "falcon", "alibi": True}, "model_type.*'falcon'"),
        ({"model_type": "nemotron_h", "rope_theta": 1e4}, "model_type.*'nemotron_h'"),
    ],
)
def test_values_out_of_range_and_unknown_types_are_refused(
    tmp_path, monkeypatch, changes, message, is_installed
):
    if is_installed:
        pytest.importorskip("transformers")
    monkeypatch.setattr("ropewalk.theory.audit.has_transformers", lambda: is_installed)
    (tmp_path / "config.json").write_text(json.dumps(FOLDER | changes))
    with pytest.raises(ValueError, match=message) as raised:
        read_model(tmp_path)
    assert "\n" not in str(raised.value)
    assert "model_type" not in changes or "did you mean" not in str(raised.value)


@pytest.mark.hf
def test_older_files_are_read_as_the_newer_ones_of_the_same_model(capsys):
    """Phi-3's name longrope "su"; a factor may be null; Qwen2.5-VL's have no text_config."""
    pytest.importorskip("transformers")
    phi = FOLDER | {"model_type": "phi3", "hidden_size": 3072, "max_position_embeddings": 131_072}
    phi |= {"original_max_position_embeddings": 4096, "pad_token_id": 0}
    newer, older = (
        read_layers(phi | {"rope_scaling": FACTORS | {"type": kind}}) for kind in ("longrope", "su")
    )
    (group,), (same,) = newer.groups, older.groups
    np.testing.assert_allclose(group.inv_freq, same.inv_freq, rtol=1e-12)
    assert group.scales.rotated == pytest.approx(same.scales.rotated)
    assert "the audit reads the config as an import does" in capsys.readouterr().err
    assert newer.groups[0].scales.rotated == pytest.approx(1 + math.log(32) / math.log(4096))
    null = read_layers(FOLDER | LONG | {"rope_scaling": OLMO | {"factor": None}})
    assert audit(null)["groups"][0]["logit_scale"] == pytest.approx((0.1 * math.log(16) + 1) ** 2)
    sections = {"type": "mrope", "mrope_section": [16, 24, 24]}
    qwen = FOLDER | {"model_type": "qwen2_5_vl", "rope_theta": 1e6, "rope_scaling": sections}
    (group,) = read_layers(qwen).groups
    np.testing.assert_allclose(group.inv_freq, series(1e6, 128), rtol=1e-6)


@pytest.mark.parametrize("name", ["model_max_length", "max_sequence_length"])
def test_a_context_that_max_position_embeddings_does_not_claim(name):
    """Command R: 131,072 tokens, not 8,192; Vicuna 1.5 16k has the other key."""
    config = FOLDER | {"rope_theta": 8e6, name: 131_072}
    model = read_layers(config)
    (group,) = audit(model)["groups"]
    sums = np.cos(np.arange(62_000)[:, None] * series(8e6, 128)).sum(axis=1)
    assert (model.context, group["reach"]) == (131_072, 131_072)
    assert group["first_violation"] == int((sums < 0).argmax()) and not group["covers"]
    assert read_layers(config | {name: 10**30}).context == 8192


@pytest.mark.hf
@pytest.mark.parametrize(
    ("model_type", "key", "value", "message"),
    [
        ("minimax", "architectures", ["MiniMaxM2ForCausalLM"], "model_type minimax_m2"),
        ("qwen2", "architectures", ["LlamaForCausalLM"], "model_type llama"),  # and of internlm3
        ("olmo3", "rope_theta", 1e6, "layer 0: transformers' rotation differs"),
        ("olmo3", "rope_scaling", OLMO | {"truncate": False}, "layer 3: transformers' rotation"),
    ],
)
def test_what_code_reads_in_two_ways_is_refused(model_type, key, value, message):
    """MiniMax-M2's first files had the model_type of MiniMax-Text, whose layers are others.

    Version 5 of transformers reads no rope_theta for OLMo 3's windows, and no truncate; 4 did.
    """
    pytest.importorskip("transformers")
    config = FOLDER | LONG | {"model_type": model_type, "num_hidden_layers": 4, "pad_token_id": 0}
    with pytest.raises(ValueError, match=message):
        read_layers(config | {key: value})


@pytest.mark.parametrize(("longest", "is_noted"), [(40_960, True), (131_072, False)])
def test_a_context_that_yarn_stretches_is_named(longest, is_noted):
    """Qwen3's card adds YaRN and leaves max_position_embeddings at 40,960."""
    rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32_768}
    config = FOLDER | {"rope_scaling": rope, "max_position_embeddings": longest}
    text = " ".join(as_text(audit(read_layers(config)), "qwen").split())
    assert ("stretches the context to 131,072 tokens, beyond" in text) == is_noted


def test_a_run_is_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model": {"num_layers": 1}}))
    with pytest.raises(ValueError, match="it has no model_type"):
        read_model(tmp_path)
