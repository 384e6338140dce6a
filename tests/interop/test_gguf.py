"""GGUF files, written with the package `gguf` as llama.cpp's converter does (`make test-hf`)."""

import dataclasses
import json
import os
import struct
from pathlib import Path

import numpy as np
import pytest
import tokenizers

from ropewalk.data.tokenizer import Tokenizer
from ropewalk.experiment import load
from ropewalk.experiment.run import PUBLISHED
from ropewalk.interop.export import export
from ropewalk.interop.gguf import GgufFile
from ropewalk.interop.importing import import_folder
from ropewalk.interop.tensors import Tensors
from ropewalk.model.rotary import parse_pattern
from ropewalk.theory.audit import read_model
from tests.data import json_tokenizers
from tests.data.hard_text import SOURCES, hard_text
from tests.in_process import limit_time
from tests.interop.weights_helpers import CONTEXT, PLAIN, changed, make_run, same_tensors

gguf = pytest.importorskip("gguf")
pytestmark = [pytest.mark.hf, pytest.mark.slow]
# transformers ignores `attention.key_length` of a llama.
NARROW = changed(PLAIN, head_dim=8)
MODELS = {
    "llama": NARROW,
    "qwen2": changed(NARROW, qkv_bias=True, tie_embeddings=True),
    "qwen3": changed(NARROW, qk_norm=True),
}
# transformers counts the tokens to size the embedding.
TOKENS = {"tokens": ["t", "1", *(f"t{i}" for i in range(94))], "token_type": [1] * 96}
TOKENS |= {"merges": ["t 1"]}
TEXT, OTHER = {"pre": "gpt-2", **TOKENS}, {"pre": "?", **TOKENS}
# Of a GGUF file, and of config.json.
KEYS = {
    "block_count": "num_hidden_layers", "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size", "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads", "attention.key_length": "head_dim",
    "attention.head_count_kv": "num_key_value_heads", "vocab_size": "vocab_size",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
}  # fmt: skip


def permuted(weights: np.ndarray, num_heads: int) -> np.ndarray:
    """`LlamaModel.permute` of llama.cpp's convert_hf_to_gguf.py."""
    halves = weights.reshape(num_heads, 2, weights.shape[0] // num_heads // 2, *weights.shape[1:])
    return halves.swapaxes(1, 2).reshape(weights.shape)


def write(path: Path, kind: str, keys: dict, arrays: dict[str, np.ndarray]) -> None:
    writer = gguf.GGUFWriter(path, kind)
    for name, value in keys.items():
        name = name if name.startswith("tokenizer.") else f"{kind}.{name}"
        writer.add_key_value(name, value, gguf.GGUFValueType.get_type(value))
    for name, array in arrays.items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_gguf(path: Path, folder: Path, kind: str, tokenizer: dict, changes=(), others=()) -> None:
    """Write the folder of an export as a GGUF file in float32, with other keys and tensors."""
    config, tensors = json.loads((folder / "config.json").read_text()), Tensors(folder)
    keys = {key: config[name] for key, name in KEYS.items()}
    keys["rope.freq_base"] = config["rope_parameters"]["rope_theta"]
    keys["tokenizer.chat_template"] = "{{ messages[0]['content'] }}"
    tokenizer = {"model": "gpt2", "bos_token_id": 0, "eos_token_id": 1} | tokenizer
    keys |= {f"tokenizer.ggml.{name}": value for name, value in tokenizer.items()}
    architectures = {name: number for number, name in gguf.MODEL_ARCH_NAMES.items()}
    names = gguf.get_tensor_name_map(architectures[kind], config["num_hidden_layers"])
    arrays = {}
    heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}
    for name in tensors.known:
        tensor = tensors.read(name)
        if kind == "llama" and (part := name.split(".")[-2]) in heads:
            tensor = permuted(tensor, config[heads[part]])
        gguf_name = names.get_name(name, try_suffixes=(".weight", ".bias"))
        arrays[gguf_name] = np.ascontiguousarray(tensor)
    write(path, kind, keys | dict(changes), arrays | dict(others))


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Path:
    """The folder of an export."""
    top = tmp_path_factory.mktemp("plain")
    export(make_run(top / "run", PLAIN).path, top / "out")
    return top / "out"


@pytest.mark.parametrize("kind", MODELS)
def test_tensors_are_restored_and_logits_are_transformers(kind, tmp_path, capsys):
    """The import itself compares logits with the file as transformers reads it."""
    export(make_run(tmp_path / "run", MODELS[kind]).path, tmp_path / "out", architecture=kind)
    write_gguf(tmp_path / "m.gguf", tmp_path / "out", kind, OTHER)
    import_folder(tmp_path / "m.gguf", tmp_path / "back")
    assert "tokens: difference" in capsys.readouterr().err
    export(tmp_path / "back", tmp_path / "again", architecture=kind)
    assert same_tensors(tmp_path / "out", tmp_path / "again")


PRE = {"gpt2": "gpt-2", "llama3": "llama-bpe", "qwen": "qwen2"}


def converted(file: dict, pre: str) -> dict:
    """Metadata of a byte-level tokenizer.json, as llama.cpp's converter writes it."""
    added = {token["id"]: token for token in file["added_tokens"]}
    pieces = {i: name for name, i in file["model"]["vocab"].items()}
    pieces |= {i: token["content"] for i, token in added.items()}
    kinds = [1 if i not in added else 3 if added[i]["special"] else 4 for i in sorted(pieces)]
    merges = [" ".join(pair) for pair in file["model"]["merges"]]
    tokens = [pieces[i] for i in sorted(pieces)]
    return {"pre": pre, "tokens": tokens, "token_type": kinds, "merges": merges}


@pytest.mark.parametrize("publisher", PRE)
def test_ids_are_those_of_the_tokenizer_json(plain, publisher, tmp_path):
    path = json_tokenizers.MADE[publisher](SOURCES, tmp_path / "in")
    metadata = converted(json.loads(path.read_text()), PRE[publisher])
    write_gguf(tmp_path / "m.gguf", plain, "llama", metadata)
    files, _ = GgufFile(tmp_path / "m.gguf").tokenizer_files()
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    expected, text = tokenizers.Tokenizer.from_file(str(path)), hard_text(200_000)
    special = " ".join(token["content"] for token in json.loads(path.read_text())["added_tokens"])
    ours = Tokenizer(tmp_path / "tokenizer.json")
    theirs = expected.encode(text + special, add_special_tokens=False).ids
    assert ours.encode(text + special, special=True) == theirs
    assert (ours.bos_id, ours.eos_id) == (0, 1)
    assert files["chat_template.jinja"] == b"{{ messages[0]['content'] }}"


@pytest.mark.parametrize("pre", [{}, {"pre": "default"}])
def test_a_file_that_names_no_rule_for_words_is_read_as_by_llama_cpp(pre, tmp_path, capsys):
    """Ids of /tokenize of llama.cpp's server (xllamacpp 2026.10) for a file with these pieces."""
    merges = ["Ġ 1", "1 2", "12 3", "Ġ x", "Ġ $", "Ġ Ġ", "ĠĠ Ġ", "! !", "' s", "Ġx +"]
    tokens = ["<s>", "</s>", *sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())]
    tokens += [merge.replace(" ", "") for merge in merges]
    metadata = pre | {"tokens": tokens, "token_type": [3, 3, *[1] * (len(tokens) - 2)]}
    metadata |= {"merges": merges, "eot_token_id": 20}
    export(make_run(tmp_path / "run", changed(PLAIN, vocab_size=300)).path, tmp_path / "out")
    write_gguf(tmp_path / "m.gguf", tmp_path / "out", "llama", metadata)
    run = import_folder(tmp_path / "m.gguf", tmp_path / "back", compare=False)
    ids = "74 85 8 84 222 260 21 22 222 5 20 265 222 261 12 259 200 263 261"
    assert run.tokenizer.encode("it's 12345 $3!!  x+12\n   x") == list(map(int, ids.split()))
    assert "llama.cpp's default is used" in capsys.readouterr().err
    generation = json.loads((run.path / PUBLISHED / "generation_config.json").read_text())
    assert generation["eos_token_id"] == [1, 20]


def test_other_tokenizers_are_named(plain, tmp_path):
    write_gguf(tmp_path / "m.gguf", plain, "llama", {"pre": "tekken", **TOKENS})
    files, note = GgufFile(tmp_path / "m.gguf").tokenizer_files()
    assert not files and "tekken" in note and "import the model's Hugging Face folder" in note


def test_frequency_factors_are_read(plain, tmp_path, capsys):
    """Llama 3.1's converter divides the frequencies by `rope_freqs.weight`."""
    variant = parse_pattern("llama3(base=500,factor=8,original_context_length=24)")
    factors = parse_pattern("rope(base=500)").inv_freq(16) / variant.inv_freq(16)  # pyright: ignore
    others = {"rope_freqs.weight": factors.astype(np.float32)}
    write_gguf(tmp_path / "m.gguf", plain, "llama", OTHER, others=others)
    # transformers has neither the factors nor the size of a head from a GGUF file.
    run = import_folder(tmp_path / "m.gguf", tmp_path / "back")
    assert "tokens: difference" in capsys.readouterr().err
    expected = dataclasses.replace(PLAIN, rotary=variant).position_table(CONTEXT)
    np.testing.assert_allclose(load(run.path).table.inv_freq, expected.inv_freq, rtol=1e-6)


@pytest.mark.parametrize(
    ("message", "keys", "tokenizer", "others"),
    [
        ("attention.head_count must be", {"attention.head_count": 0}, TEXT, {}),
        ("head_dim=7", {"attention.key_length": 7}, TEXT, {}),
        ("attention.sliding_window=9", {"attention.sliding_window": 9}, TEXT, {}),
        # The library `tokenizers` panics.
        ("no pieces of the merge 't q'", {}, TEXT | {"merges": ["t q"]}, {}),
        ("tokenizer.ggml.tokens must be a list of str", {}, TEXT | {"tokens": [1, 2]}, {}),
        ("'no_dot' is not part of our models", {}, TEXT, {"no_dot": np.ones(4, np.float32)}),
        ("Dequantization for I32", {}, TEXT, {"output_norm.weight": np.ones(32, np.int32)}),
    ],
)
def test_values_that_we_lack_are_refused(message, keys, tokenizer, others, plain, tmp_path):
    write_gguf(tmp_path / "m.gguf", plain, "llama", tokenizer, keys, others)
    with pytest.raises(ValueError, match=message) as raised:
        import_folder(tmp_path / "m.gguf", tmp_path / "back", compare=False)
    assert str(raised.value).isprintable() and not (tmp_path / "back").exists()


@pytest.mark.parametrize("reader", [read_model, lambda path: import_folder(path, f"{path}.run")])
def test_damaged_headers_and_pipes_are_refused(reader, plain, tmp_path):
    """Counts of values beyond the file would take hours to read."""
    name, correct = b"general.x", tmp_path / "m.gguf"
    start = struct.pack("<4sIQQQ", b"GGUF", 3, 0, 1, len(name)) + name
    hostile = [start + struct.pack("<IIQ", 9, kind, 2**40) for kind in (0, 4, 8, 9, 99)]
    hostile += [struct.pack("<4sIQQ", b"GGUF", 3, 2**60, 2**60), b"GGUF", b""]
    # A field without a name: a long array of an unknown type.
    hostile.append(struct.pack("<4sIQQQIIQ", b"GGUF", 3, 0, 1, 0, 9, 99, 2**13))
    write_gguf(correct, plain, "llama", TEXT)
    hostile += [correct.read_bytes()[:size] for size in (600, -1000)]
    for number, content in enumerate(hostile):
        path = tmp_path / f"{number}.gguf"
        path.write_bytes(content)
        with limit_time(100), pytest.raises(ValueError, match="not a GGUF file, or damaged"):
            reader(path)
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(ValueError, match=r"not a GGUF file, or damaged|not a regular file"):
        reader(tmp_path / "pipe.gguf")


def header(tmp_path: Path, kind: str, metadata: dict, tensors=()) -> Path:
    """Write a file of metadata and vectors."""
    path, sizes = tmp_path / "header.gguf", {"block_count": 2, "context_length": 8192}
    sizes |= {"embedding_length": 256, "attention.head_count": 4}
    arrays = {name: np.asarray(values, np.float32) for name, values in tensors}
    write(path, kind, sizes | metadata, arrays)
    return path


YARN = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0}
YARN |= {"rope.scaling.original_context_length": 2048}
SLOW = YARN | {"rope.scaling.yarn_beta_fast": 8.0, "rope.scaling.yarn_beta_slow": 4.0}
BASE = 1e4 ** -np.arange(0, 1, 1 / 32)


def ramp(bounds: str) -> np.ndarray:
    text = f"yarn(base=10000,factor=4,original_context_length=2048{bounds})"
    return parse_pattern(text).inv_freq(64)  # pyright: ignore


FACTOR, FACTORS = {"rope.scaling.attn_factor": 1.19}, np.linspace(1, 8, 32)


@pytest.mark.parametrize(
    ("metadata", "tensors", "scale", "inv_freq"),
    [
        ({}, (), 1.0, BASE),
        ({"rope.scale_linear": 4.0}, (), 1.0, BASE / 4),
        # A missing type is linear.
        ({"rope.scaling.factor": 2.0, "rope.scale_linear": 4.0}, (), 1.0, BASE / 2),
        ({"rope.scaling.type": "none", "rope.scaling.factor": 4.0}, (), 1.0, BASE),
        ({"rope.scaling.factor": 4.0}, [("rope_freqs.weight", FACTORS)], 1.0, BASE / FACTORS / 4),
        (YARN, (), (1 + 0.1 * np.log(4)) ** 2, ramp("")),
        (SLOW | FACTOR, (), (1.19 + 0.119 * np.log(4)) ** 2, ramp(",beta_fast=8,beta_slow=4")),
    ],
)
def test_rope_keys_are_read_as_llama_cpp_reads_them(metadata, tensors, scale, inv_freq, tmp_path):
    """ggml_rope_ext: x attn_factor, and x (1 + 0.1 ln factor) if there is a ramp."""
    (group,) = read_model(header(tmp_path, "llama", metadata, tensors)).groups
    assert group.scales.rotated == pytest.approx(scale, rel=1e-6)
    np.testing.assert_allclose(group.inv_freq, inv_freq, rtol=1e-6)


@pytest.mark.parametrize(
    ("kind", "rotated", "window"),
    [("phi3", 48, None), ("stablelm", 32, None), ("starcoder2", 64, 512)],
)
def test_bases_partial_rotations_and_windows_of_a_header_are_read(kind, rotated, window, tmp_path):
    """Classes have other defaults: 64, 16 and 64 features of 64, and base 10,000."""
    metadata = {"rope.dimension_count": rotated, "rope.freq_base": 5e5, "attention.key_length": 64}
    metadata |= {"attention.sliding_window": window} if window else {}
    (group,) = read_model(header(tmp_path, kind, metadata)).groups
    expected = 5e5 ** (-np.arange(0, rotated, 2) / rotated)
    np.testing.assert_allclose(group.inv_freq[group.inv_freq > 0], expected, rtol=1e-6)
    assert group.window == window


@pytest.mark.parametrize(
    ("kind", "name", "value", "message"),
    [
        ("llama", "rope.freq_base_swa", 1e4, "rope.freq_base_swa"),
        ("llama", "rope.scaling.type", "longrope", "rope.scaling.type"),
        ("gpt_neox", "rope.dimension_count", 128, "partial_rotary_factor must be a finite number"),
        ("unknown", "vocab_size", 16, "model_type"),
        ("qwen3", "attention.key_length", 2**30, "a vector of 1,073,741,824 numbers"),
    ],
)
def test_keys_that_may_change_the_rotation_are_refused(kind, name, value, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        read_model(header(tmp_path, kind, {name: value}))


@pytest.mark.parametrize(
    ("kind", "sizes", "divisor"),
    [("gemma2", (46, 4608, 32, 128), 144), ("gemma3", (62, 5376, 32, 128), 168)],
)
def test_the_factor_of_gemma_is_that_of_its_size(kind, sizes, divisor, tmp_path):
    """query_pre_attn_scalar of google/gemma-2-27b and gemma-3-27b, which headers do not have."""
    names = ("block_count", "embedding_length", "attention.head_count", "attention.key_length")
    model = read_model(header(tmp_path, kind, dict(zip(names, sizes, strict=True))))
    for group in model.groups:
        assert group.scales.unrotated == pytest.approx((128 / divisor) ** 0.5)
