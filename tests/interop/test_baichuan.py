"""Baichuan's 7B models: queries, keys and values in one tensor, and an output of unit rows."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from ropewalk.experiment import load
from ropewalk.experiment.checkpoint import leaves_by_name
from ropewalk.interop.export import export
from ropewalk.interop.hf_config import parse_config
from ropewalk.interop.importing import import_folder
from ropewalk.interop.tensors import Tensors
from tests.interop.weights_helpers import PLAIN, changed, make_run, noise

# Keys of Baichuan2-7B-Base's config.json; its code has base 10,000, and no key for it.
KEYS = {
    "architectures": ["BaichuanForCausalLM"], "model_type": "baichuan", "hidden_act": "silu",
    "hidden_size": 32, "intermediate_size": 40, "max_position_embeddings": 48,
    "model_max_length": 48, "num_attention_heads": 4, "num_hidden_layers": 1, "pad_token_id": 0,
    "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "use_cache": True, "z_loss_weight": 0,
}  # fmt: skip


def write_folder(tmp_path, vocab_size):
    """Write random parameters as Baichuan's files, with scaled rows of the output; return both."""
    sizes = dict(vocab_size=vocab_size, num_layers=1, num_kv_heads=None, head_dim=8)
    model = changed(PLAIN, "rope(base=10000)", norm_epsilon=1e-6, **sizes)
    export(make_run(tmp_path / "run", model).path, tmp_path / "llama")
    llama, folder = Tensors(tmp_path / "llama"), tmp_path / "baichuan"
    tensors = {name: llama.read(name) for name in llama.known}
    prefix = "model.layers.0.self_attn."
    parts = [tensors.pop(f"{prefix}{x}_proj.weight") for x in "qkv"]
    tensors[f"{prefix}W_pack.weight"] = np.concatenate(parts)
    factors = np.random.default_rng(1).uniform(0.1, 9, (vocab_size, 1)).astype(np.float32)
    tensors["lm_head.weight"] = tensors["lm_head.weight"] * factors
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(KEYS | {"vocab_size": vocab_size}))
    return folder, leaves_by_name(noise(model)), tensors["lm_head.weight"]


@pytest.mark.slow
@pytest.mark.parametrize("vocab_size", [64_000, 125_696])
def test_an_import_has_baichuans_parameters(tmp_path, vocab_size, capsys):
    folder, expected, output_VD = write_folder(tmp_path, vocab_size)
    run = load(import_folder(folder, tmp_path / "back").path)
    assert "has no such class" in capsys.readouterr().err
    arrays = leaves_by_name(run.params)
    for name in expected.keys() - {"output"}:
        np.testing.assert_array_equal(arrays[name], expected[name], err_msg=name)
    if vocab_size == 125_696:  # Baichuan 2 divides each row by its length
        output_VD = output_VD / np.sqrt(np.square(output_VD, dtype=np.float64).sum(1))[:, None]
        # Its export is a Llama with the same logits.
        export(tmp_path / "back", tmp_path / "out")
        written = json.loads((tmp_path / "out" / "config.json").read_text())
        assert written["model_type"] == "llama"
    np.testing.assert_allclose(arrays["output"], output_VD, rtol=1e-6)
    inv_freq = np.float64(10_000) ** (-np.arange(4) / 4)
    np.testing.assert_allclose(run.table.inv_freq[0, 0, :4], inv_freq, rtol=1e-12)


def test_models_without_rotation_and_of_unknown_output_are_refused():
    with pytest.raises(ValueError, match="baichuan has 64000 and 125696"):
        parse_config(KEYS | {"vocab_size": 32_000}, "folder")
    config = KEYS | {"vocab_size": 125_696}
    del config["max_position_embeddings"]
    with pytest.raises(ValueError, match="ALiBi"):
        parse_config(config, "folder")
