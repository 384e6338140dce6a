"""GGUF files, written with the package `gguf` as llama.cpp's converter does (`make test-hf`)."""

import json
from pathlib import Path

import numpy as np
import pytest

from ropewalk.interop.export import export
from ropewalk.interop.importing import import_folder
from ropewalk.interop.tensors import Tensors
from tests.interop.weights_helpers import PLAIN, changed, make_run, same_tensors

gguf = pytest.importorskip("gguf")
pytestmark = [pytest.mark.hf, pytest.mark.slow]
TOKENIZER = {"model": "gpt2", "pre": "gpt-2", "bos_token_id": 0, "eos_token_id": 1}
TOKENIZER |= {"tokens": ["t", "1", *(f"t{i}" for i in range(94))], "token_type": [1] * 96}
TOKENIZER |= {"merges": ["t 1"]}
# Of a GGUF file, and of config.json.
KEYS = {
    "block_count": "num_hidden_layers", "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size", "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads", "attention.key_length": "head_dim",
    "attention.head_count_kv": "num_key_value_heads", "vocab_size": "vocab_size",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
}  # fmt: skip


def write_gguf(path: Path, folder: Path, others: dict[str, float]) -> None:
    """Write the folder of a llama as a GGUF file in float32, with other keys."""
    config, tensors = json.loads((folder / "config.json").read_text()), Tensors(folder)
    keys = {f"llama.{key}": config[name] for key, name in KEYS.items()}
    keys["llama.rope.freq_base"] = config["rope_parameters"]["rope_theta"]
    keys["llama.rope.dimension_count"] = config["head_dim"]
    keys |= {f"tokenizer.ggml.{name}": value for name, value in TOKENIZER.items()}
    writer = gguf.GGUFWriter(path, "llama")
    for name, value in (keys | others).items():
        writer.add_key_value(name, value, gguf.GGUFValueType.get_type(value))
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config["num_hidden_layers"])
    heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}
    for name in tensors.known:
        tensor = tensors.read(name)
        if (part := name.split(".")[-2]) in heads:  # `LlamaModel.permute` of llama.cpp's converter
            halves = tensor.reshape(config[heads[part]], 2, -1, tensor.shape[-1])
            tensor = halves.swapaxes(1, 2).reshape(tensor.shape)
        gguf_name = names.get_name(name, try_suffixes=(".weight", ".bias"))
        writer.add_tensor(gguf_name, np.ascontiguousarray(tensor))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_a_file_is_imported_as_transformers_reads_it(tmp_path, capsys):
    export(make_run(tmp_path / "run", changed(PLAIN, head_dim=8)).path, tmp_path / "out")
    write_gguf(tmp_path / "m.gguf", tmp_path / "out", {})
    run = import_folder(tmp_path / "m.gguf", tmp_path / "back")
    assert "tokens: difference" in capsys.readouterr().err  # from transformers' logits
    assert run.record["imported"]["name"] == "m.gguf" and run.tokenizer.vocab_size == 96
    export(run.path, tmp_path / "again")
    assert same_tensors(tmp_path / "out", tmp_path / "again")
    # transformers would read none of these, and rotate otherwise.
    write_gguf(tmp_path / "s.gguf", tmp_path / "out", {"llama.rope.scaling.factor": 4.0})
    with pytest.raises(ValueError, match=r"llama\.rope\.scaling\.factor would be left out"):
        import_folder(tmp_path / "s.gguf", tmp_path / "other")
    assert not list(tmp_path.glob("other*"))
