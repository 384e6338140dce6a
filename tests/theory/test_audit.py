"""Audits against transformers' own classes, and misreadings against a search over all distances."""

import copy
import importlib
import inspect
import json
import math
import struct

import numpy as np
import pytest

from theory.audit import as_text, audit, read_config
from theory.misreadings import first_rounding
from theory.published import OPEN_MODELS
from theory.published_layers import read_layers
from utils.messages import printable

MODELS = {model.name: model.config for model in OPEN_MODELS}
TOLERANCE = 0.05


def series(base, dim):
    return [base ** (-2 * i / dim) for i in range(dim // 2)]


def yarn(base, dim, factor, original, truncate, inverted=False):
    """YaRN of Peng et al. 2023, Section 3.2, with beta_fast 32 and beta_slow 1."""
    low, high = (
        dim * math.log(original / (cycles * 2 * math.pi)) / (2 * math.log(base))
        for cycles in (32, 1)
    )
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    vector = []
    for i, frequency in enumerate(series(base, dim)):
        ramp = min(max((i - low) / (high - low), 0), 1)
        share = 1 - ramp if inverted else ramp
        vector.append(frequency / factor * share + frequency * (1 - share))
    return vector


def first_wrong(expected, actual, limit=200_000):
    """The first distance at which a pair is off, by trying all of them in order."""
    size = max(len(expected), len(actual))
    a, b = (np.pad(np.array(v), (0, size - len(v))) for v in (expected, actual))
    for m in range(1, limit):
        if np.abs(np.exp(1j * m * a) - np.exp(1j * m * b)).max() > TOLERANCE:
            return m
    return None


OSS = yarn(150_000, 64, 32, 4096, truncate=False)
CASES = {
    "ignores the base": ("smollm2-135m", series(1e5, 64), series(1e4, 64)),
    "ignores rope_scaling": ("gpt-oss-20b", OSS, series(150_000, 64)),
    "inverts the ramp": ("gpt-oss-20b", OSS, yarn(150_000, 64, 32, 4096, False, inverted=True)),
    "rounds the ramp": ("gpt-oss-20b", OSS, yarn(150_000, 64, 32, 4096, truncate=True)),
    "divides positions": ("gpt-oss-20b", OSS, [f / 32 for f in OSS]),
    "exponent over the other width": ("pythia-1.4b", series(1e4, 32), series(1e4, 128)[:16]),
    "rotates all features": ("pythia-1.4b", series(1e4, 32), series(1e4, 128)),
    "frequencies of full": ("gemma-3-4b", series(1e4, 256), [f / 8 for f in series(1e6, 256)]),
    "ratio of contexts": (
        "deepseek-v3",
        yarn(1e4, 64, 40, 4096, truncate=True),
        yarn(1e4, 64, 20, 4096, truncate=True),
    ),
}


def misreadings(config):
    return {row["name"]: row for row in audit(config, TOLERANCE)["misreadings"]}


@pytest.mark.parametrize("name_part", CASES)
def test_a_misreading_begins_where_a_search_finds_it(name_part):
    name, expected, actual = CASES[name_part]
    config = dict(MODELS[name])
    if name_part == "ratio of contexts":  # published: 163840 / 4096 = 40, the factor itself
        assert not any(name_part in row for row in misreadings(config))
        config["max_position_embeddings"] = 20 * 4096
    (row,) = (row for text, row in misreadings(config).items() if name_part in text)
    assert row["first"] == first_wrong(expected, actual)


def test_constants_of_llama_31_are_wrong_for_llama_32():
    """Llama 3.2 stretches by 32; the slowest pair that differs is the first in the ramp."""
    name = "uses the constants of Llama 3.1"
    assert name not in misreadings(MODELS["llama-3.1-8b"])
    plain = np.array(series(5e5, 64))
    cycles = 8192 * plain / (2 * np.pi)
    share = np.clip((cycles - 1) / 3, 0, 1)
    vectors = [plain * (share + (1 - share) / factor) for factor in (32, 8)]
    assert misreadings(MODELS["llama-3.2-1b"])[name]["first"] == first_wrong(*vectors)


def test_layers_without_rotation_must_not_rotate():
    row = misreadings(MODELS["smollm3-3b"])["rotates layers without rotation"]
    assert (row["first"], row["kinds"]) == (1, ("full_attention",))


def test_temperatures():
    """gpt-oss: (0.1 ln 32 + 1)^2; OLMo 3 states 0.1 ln 8 + 1; DeepSeek V4 has none."""
    facts = audit(MODELS["gpt-oss-20b"])
    assert facts["groups"][1]["logit_scale"] == pytest.approx((0.1 * math.log(32) + 1) ** 2)
    assert "omits the temperature on the logits" in misreadings(MODELS["olmo-3-7b"])
    assert "uses the default temperature of YaRN" in misreadings(MODELS["deepseek-v4"])
    assert "uses the default temperature of YaRN" not in misreadings(MODELS["olmo-3-7b"])


def test_plain_models_raise_no_false_alarm():
    """Only what is wrong for every rotation: pairs, the base where it is not 10000, roundings."""
    assert set(misreadings(MODELS["llama-2-7b"])) == {
        "pairs neighbors (2i, 2i+1) instead of (i, i+R), or the reverse",
        "multiplies positions and frequencies in bfloat16",
    }


def test_rounding_to_float32_begins_where_numpy_is_wrong():
    inv_freq, tolerance = np.array(series(1e4, 64)[:8]), 0.01
    first = first_rounding(inv_freq, 2**19, 24, tolerance)
    positions = np.arange(2**19)[:, None]
    product = positions.astype(np.float32) * inv_freq.astype(np.float32)
    wrong = np.abs(product.astype(np.float64) - positions * inv_freq).max(1) > tolerance
    assert first == int(np.argmax(wrong)) > 0
    assert first_rounding(inv_freq, first, 24, tolerance) is None


def test_facts_of_smollm2():
    """B_m < 0 from 3,616 tokens on, and 8,192 tokens need a base of 323,744."""
    (group,) = audit(MODELS["smollm2-135m"])["groups"]
    assert group["first_violation"] == 3616 and not group["covers"]
    assert group["smallest_base"] == pytest.approx(323_744.127, abs=0.01)
    # Liu et al. 2023: 2 ceil(32 log_1e5(8192 / 2π)) = 40, rounded down to complete cycles.
    assert group["critical_dimension"] == 40
    assert group["slowest_periods"][0] == pytest.approx(2 * math.pi * 1e5 ** (31 / 32))


def test_kinds_of_layers():
    def layers(name):
        return {group.kind: group.layers for group in read_layers(MODELS[name]).groups}

    assert layers("gemma-3-4b")["full_attention"] == (5, 11, 17, 23, 29)
    assert layers("qwen3-next-80b") == {"full_attention": tuple(range(3, 48, 4))}
    assert layers("exaone-4.0-32b")["full_attention"] == tuple(range(3, 64, 4))
    assert layers("mistral-7b-v0.2") == {"full_attention": tuple(range(32))}
    assert layers("mistral-7b-v0.1") == {"sliding_attention": tuple(range(32))}


def rotary_class(model_type):
    module = importlib.import_module(f"transformers.models.{model_type}.modeling_{model_type}")
    classes = [cls for name, cls in vars(module).items() if name.endswith("RotaryEmbedding")]
    text = [cls for cls in classes if "Vision" not in cls.__name__ and inspect.isclass(cls)]
    return text[0]


@pytest.mark.hf
@pytest.mark.parametrize("name", [name for name in MODELS if name != "gpt-j-6b"])
def test_vectors_are_those_of_transformers(name):
    """GPT-J has no class of its own for its rotation."""
    import transformers

    config = copy.deepcopy(MODELS[name])  # transformers changes nested values
    model_type = config.pop("model_type").replace("kimi_k2", "deepseek_v3")
    hf_config = transformers.AutoConfig.for_model(model_type, **config)
    rotary = rotary_class(model_type.removesuffix("_text"))(hf_config)
    buffers = dict(rotary.named_buffers())
    groups = [group for group in read_layers(MODELS[name]).groups if group.rope]
    assert groups
    for group in groups:
        kind = "compress" if model_type == "deepseek_v4" else group.kind
        label = f"{kind}_" if f"{kind}_inv_freq" in buffers else ""
        actual = buffers[f"{label}inv_freq"].double().numpy()
        np.testing.assert_allclose(group.inv_freq, actual, rtol=5e-7, atol=1e-25)
        factor = getattr(rotary, f"{label}attention_scaling")
        assert group.scales.rotated == pytest.approx(factor**2 * group.scales.unrotated, rel=1e-6)
    kinds = getattr(hf_config, "layer_types", None)
    if kinds and "full_attention" in kinds and model_type != "smollm3":
        full = [n for group in groups if group.kind == "full_attention" for n in group.layers]
        assert not full or full == [n for n, kind in enumerate(kinds) if kind == "full_attention"]


def test_names_of_a_config_are_neither_markup_nor_control_characters():
    kinds = ["[/red]\x1b[2J", "full_attention"]
    config = MODELS["llama-2-7b"] | {"model_type": "[/x]:x:\x1b", "num_hidden_layers": 2}
    text = as_text(audit(config | {"layer_types": kinds}), "\x07name")
    assert printable(text) == text and "[/x]:x:" in text and "[/red]" in text


def gguf_bytes(values, tensors=b"", num_tensors=0):
    def text(string):
        return struct.pack("<Q", len(string)) + string.encode()

    body = b""
    for name, value in values.items():
        body += text(name)
        if isinstance(value, str):
            body += struct.pack("<I", 8) + text(value)
        elif isinstance(value, list):
            body += struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))
        elif isinstance(value, float):
            body += struct.pack("<If", 6, value)
        else:
            body += struct.pack("<II", 4, value)
    return struct.pack("<4sIQQ", b"GGUF", 3, num_tensors, len(values)) + body + tensors


HEADER = {
    "general.architecture": "llama", "tokenizer.ggml.tokens": ["a"] * 5000, "llama.block_count": 2,
    "llama.context_length": 8192, "llama.embedding_length": 576, "llama.attention.head_count": 9,
    "llama.rope.freq_base": 100_000.0, "llama.rope.dimension_count": 64,
}  # fmt: skip


def test_a_gguf_header_equals_the_config_json(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf_bytes(HEADER))
    (group,), (expected,) = (
        read_layers(config).groups for config in (read_config(path), MODELS["smollm2-135m"])
    )
    np.testing.assert_array_equal(group.inv_freq, expected.inv_freq)
    assert group.layers == (0, 1)


def test_factors_of_llama_31_in_a_gguf_file(tmp_path):
    """llama.cpp stores them as a tensor: pair i turns factor_i times slower."""
    name, factors = b"rope_freqs.weight", np.linspace(1, 8, 32, dtype="<f4")
    info = struct.pack("<Q", len(name)) + name + struct.pack("<IQIQ", 1, 32, 0, 0)
    header = gguf_bytes(HEADER, info, num_tensors=1)
    path = tmp_path / "model.gguf"
    path.write_bytes(header + bytes(-len(header) % 32) + factors.tobytes())
    (group,) = read_layers(read_config(path)).groups
    np.testing.assert_allclose(group.inv_freq, np.array(series(1e5, 64)) / factors, rtol=1e-6)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (gguf_bytes(HEADER)[:-3], "not a complete GGUF file"),
        (b"PK\x03\x04" + bytes(40), "not a complete GGUF file"),
        (gguf_bytes({"general.name": "x"}), "lacks general.architecture"),
    ],
)
def test_damaged_gguf_files_are_refused(tmp_path, content, message):
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_config(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_layers": None}, "lacks 'num_hidden_layers'"),
        ({"num_hidden_layers": -1}, r"num_hidden_layers must be a whole number in \[1, 10000\]"),
        ({"rope_scaling": {"rope_type": "yern"}}, "rope_type 'yern' is not supported"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "lacks 'factor'"),
        ({"rope_scaling": 3}, "rope_scaling must be an object"),
    ],
)
def test_invalid_configs_are_refused(tmp_path, changes, message):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(MODELS["llama-2-7b"] | changes))
    with pytest.raises(ValueError, match=message):
        audit(read_config(tmp_path))
