"""Imports of exported folders are exact; imports of transformers' models have its logits."""

import dataclasses
import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from ropewalk.experiment import load
from ropewalk.experiment.checkpoint import leaves_by_name
from ropewalk.interop.architectures import ARCHITECTURES
from ropewalk.interop.export import export
from ropewalk.interop.importing import import_folder, looks_interleaved
from ropewalk.interop.tensors import Tensors
from tests.interop.weights_helpers import CASES, CONTEXT, make_run, mark_long, noise, same_tensors

pytestmark = pytest.mark.slow
PLAIN = CASES["gqa"][2]


# Sums of the tensors' numbers, weighed by tensor and place, in folders with transformers' logits.
CHECKSUMS = {"window by layer": -31.363927, "mla with yarn": -45.326585, "olmo 2": -13.382567}


def checksum(folder: Path) -> float:
    tensors = Tensors(folder)
    arrays = [tensors.read(name).ravel().astype(float) for name in sorted(tensors.known)]
    return sum(np.cos(np.arange(len(x)) + i) @ x for i, x in enumerate(arrays))


@pytest.mark.parametrize("name", mark_long(CASES))
def test_round_trip_is_exact(name, tmp_path):
    model_type, rope_type, model = CASES[name]
    export(make_run(tmp_path / "run", model).path, tmp_path / "out")
    written = json.loads((tmp_path / "out" / "config.json").read_text())
    assert written["model_type"] == model_type
    assert written["architectures"] == [ARCHITECTURES[model_type].class_name]
    assert rope_type in (None, written["rope_parameters"].get("rope_type"))
    if name in CHECKSUMS:
        assert checksum(tmp_path / "out") == pytest.approx(CHECKSUMS[name])
    run = import_folder(tmp_path / "out", tmp_path / "back")
    loaded, expected = load(run.path), leaves_by_name(noise(model))
    for leaf, array in leaves_by_name(loaded.params).items():
        np.testing.assert_array_equal(array, expected[leaf], err_msg=leaf)
    table = model.position_table(CONTEXT)
    fields = ("inv_freq", "logit_scale", *["unrotated_logit_scale"] * (model.mla is not None))
    for field in fields:
        ours, expected = getattr(loaded.table, field), getattr(table, field)
        np.testing.assert_allclose(ours, expected, rtol=1e-12, atol=1e-25, err_msg=field)
    back = loaded.config.model
    assert back.windows == model.windows
    # A pattern comes back written its shortest way, and the number of heads written out.
    fields = {"rotary": model.rotary, "window": model.window, "num_kv_heads": model.num_kv_heads}
    assert dataclasses.replace(back, **fields) == model
    assert loaded.config.data.context_length == CONTEXT
    export(run.path, tmp_path / "again")
    assert same_tensors(tmp_path / "out", tmp_path / "again")


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
def test_dtype_is_kept(dtype, tmp_path):
    export(make_run(tmp_path / "run", PLAIN, dtype=dtype).path, tmp_path / "out")
    run = import_folder(tmp_path / "out", tmp_path / "back", compare=False)
    loaded, expected = load(run.path), leaves_by_name(noise(PLAIN))
    for name, leaf in leaves_by_name(loaded.params).items():
        assert leaf.dtype == dtype
        assert leaf.tobytes() == expected[name].astype(dtype).tobytes()


def test_weights_must_be_finite(tmp_path):
    export(make_run(tmp_path / "run", PLAIN).path, tmp_path / "out")
    tensors = Tensors(tmp_path / "out")
    values = {name: tensors.read(name).copy() for name in tensors.known}
    values["model.layers.1.mlp.up_proj.weight"][2, 3] = np.nan
    save_file(values, tmp_path / "out" / "model.safetensors")
    with pytest.raises(ValueError, match=r"layers\.1\.mlp\.up_proj\.weight' has 1 values that are"):
        import_folder(tmp_path / "out", tmp_path / "back")


def test_a_second_output_of_a_class_that_names_its_embedding_otherwise_is_refused(tmp_path):
    """GPT-NeoX's embedding is gpt_neox.embed_in.weight; only Llama's name is looked up."""
    model = dataclasses.replace(CASES["gpt-neox"][2], tie_embeddings=True)
    export(make_run(tmp_path / "run", model).path, tmp_path / "out")
    tensors = Tensors(tmp_path / "out")
    values = {name: tensors.read(name) for name in tensors.known}
    values["lm_head.weight"] = values["gpt_neox.embed_in.weight"]
    save_file(values, tmp_path / "out" / "model.safetensors")
    with pytest.raises(ValueError, match=r"'lm_head\.weight' and 0 other tensors are"):
        import_folder(tmp_path / "out", tmp_path / "back")


def test_an_index_of_an_older_save_is_not_read(tmp_path):
    """transformers leaves it beside the new file, and does not read it."""
    export(make_run(tmp_path / "run", PLAIN).path, tmp_path / "out", shard_bytes=2**13)
    tensors = Tensors(tmp_path / "out")
    assert len(list((tmp_path / "out").glob("model-*.safetensors"))) > 1
    newer = {name: 2 * tensors.read(name) for name in tensors.known}
    save_file(newer, tmp_path / "out" / "model.safetensors")
    (tmp_path / "out" / "logit_check.json").unlink()
    run = import_folder(tmp_path / "out", tmp_path / "back", compare=False)
    expected = 2 * noise(PLAIN)["embedding"]
    np.testing.assert_array_equal(load(run.path).params["embedding"], expected)


RUNS = Path(__file__).parents[2] / "notebooks/runs"


@pytest.mark.parametrize("name", ["base=10,num_heads=4", "base=10,num_heads=1"])
def test_trained_keys_look_interleaved_if_shuffled(name):
    """A million tokens of training are enough to detect Meta's order."""
    attention = load(RUNS / name).params["blocks"]["attention"]
    weights = [attention[name].astype(np.float32)[0] for name in ("query", "key")]
    norms = [np.linalg.norm(weight, axis=0) for weight in weights]
    norms = np.concatenate(norms * 2)  # one layer of one head has few
    order = np.arange(64).reshape(2, 32).T.ravel()
    assert not looks_interleaved(norms)
    assert looks_interleaved(norms[:, order])
    assert not looks_interleaved(np.exp(np.random.default_rng(0).normal(size=(8, 64))))


GQA = {"num_key_value_heads": 2}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 12}
MSCALES = YARN | {"mscale": 1.0, "mscale_all_dim": 0.7}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 32}
LLAMA3 |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_theta": 5e5}
PHI4 = {"tie_word_embeddings": True, "sliding_window": 262_144}
PHI4 |= {"original_max_position_embeddings": 16}
PHI4_ROPE = {"rope_type": "longrope", "partial_rotary_factor": 0.75}
PHI4_ROPE |= {"short_factor": [1.0, 1.1, 1.3], "long_factor": [1.0, 1.9, 4.2]}
MLA = {"first_k_dense_replace": 3, "kv_lora_rank": 20, "qk_nope_head_dim": 16}
MLA |= {"qk_rope_head_dim": 8, "v_head_dim": 10, "num_key_value_heads": 4}
QWEN2 = {"use_sliding_window": True, "max_window_layers": 1, "sliding_window": 9}
OLMO3 = {kind: {"rope_theta": 500.0} for kind in ("sliding_attention", "full_attention")}
OLMO3["full_attention"] |= YARN
GEMMA3 = {"num_hidden_layers": 7, "head_dim": 16, "sliding_window": 11, "query_pre_attn_scalar": 24}
GEMMA3_ROPE = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
    "full_attention": {"rope_type": "linear", "rope_theta": 5000.0, "factor": 8.0},
}
# Class, changes of config.json, and rope parameters.
PUBLISHED = {
    "llama 3.2": ("Llama", GQA | {"tie_word_embeddings": True, "head_dim": 16}, LLAMA3),
    "llama with a key that it ignores": ("Llama", {}, {"partial_rotary_factor": 0.5}),
    "mistral": ("Mistral", GQA | {"sliding_window": 11}, {}),
    "qwen 2": ("Qwen2", GQA | QWEN2, {"rope_theta": 1e6}),
    "qwen 3": ("Qwen3", GQA | {"head_dim": 16}, {"rope_theta": 1e6}),
    "phi 3": ("Phi3", GQA, {"partial_rotary_factor": 0.75}),
    "phi 4 mini": ("Phi3", GQA | PHI4, PHI4_ROPE),
    "smollm 3": ("SmolLM3", GQA | {"num_hidden_layers": 4}, {}),
    "deepseek v3": ("DeepseekV3", MLA | {"q_lora_rank": 12, "num_mtp_layers": 0}, MSCALES),
    "olmo 2": ("Olmo2", GQA, {"rope_theta": 5e5}),
    "olmo 3": ("Olmo3", GQA | {"num_hidden_layers": 4, "sliding_window": 11}, OLMO3),
    "pythia": ("GPTNeoX", {"hidden_size": 64}, {"partial_rotary_factor": 0.25}),
    "gemma 3": ("Gemma3Text", GQA | GEMMA3, GEMMA3_ROPE),
    "deepseek v2": ("DeepseekV2", MLA | {"q_lora_rank": None}, {}),
}


def their_model(name: str):
    """A small model of transformers with random parameters."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    kind, changes, rope = PUBLISHED[name]
    sizes = {"vocab_size": 96, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 3}
    sizes |= {"num_attention_heads": 4, "max_position_embeddings": CONTEXT, "pad_token_id": None}
    default = {} if "full_attention" in rope else {"rope_type": "default", "rope_theta": 500.0}
    config_class = getattr(transformers, f"{kind}Config")
    config = config_class(**(sizes | changes), rope_parameters=default | rope)
    kind = kind.removesuffix("Text")
    model = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    with torch.no_grad():
        for leaf, tensor in model.named_parameters():
            spread = 1.4 / tensor.shape[-1] ** 0.5 if tensor.ndim > 1 else 0.3
            start = "norm" in leaf and "bias" not in leaf and kind != "Gemma3"
            tensor.copy_(torch.randn(tensor.shape) * spread + start)
    return model


QUICK = ("llama with a key that it ignores", "llama 3.2", "qwen 2", "phi 4 mini", "deepseek v3")
QUICK += ("olmo 3", "pythia", "gemma 3")


@pytest.mark.hf
@pytest.mark.parametrize("name", mark_long(PUBLISHED, QUICK))
def test_imported_transformers_models_have_their_logits(name, tmp_path, capsys):
    """Files written by transformers; logits at the trained context and at four times that."""
    import torch

    model = their_model(name)
    model.save_pretrained(tmp_path / "theirs")
    run = import_folder(tmp_path / "theirs", tmp_path / "run")
    assert "tokens: difference" in capsys.readouterr().err
    loaded = load(run.path)
    assert loaded.config.data.context_length == CONTEXT
    for length in (CONTEXT, 4 * CONTEXT):
        tokens = np.random.default_rng(1).integers(0, 96, (2, length))
        with torch.no_grad():
            theirs_BTV = model(torch.from_numpy(tokens)).logits.numpy()
        np.testing.assert_allclose(loaded.logits(tokens), theirs_BTV, atol=2e-4)
    export(run.path, tmp_path / "again")
    assert same_tensors(tmp_path / "theirs", tmp_path / "again")
