"""Exported folders, read by transformers (marked `hf`) and read back."""

import contextlib
import dataclasses
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from ropewalk.interop.check import compare_logits
from ropewalk.interop.choose import choose_architecture
from ropewalk.interop.export import export
from ropewalk.interop.hf_config import parse_config
from ropewalk.interop.tensors import Tensors
from ropewalk.interop.weights import make_entries
from ropewalk.model.config import ModelConfig
from tests.interop.weights_helpers import CASES, CONTEXT, PLAIN, changed, make_run, mark_long, yarn

# Slow: a program is compiled for every class.
pytestmark = pytest.mark.slow


@pytest.mark.hf
@pytest.mark.parametrize("name", mark_long(CASES))
def test_transformers_logits_equal_ours(name, tmp_path):
    """The export itself compares them, with every layer's rotation and window."""
    pytest.importorskip("transformers")
    note = export(make_run(tmp_path / "run", CASES[name][2]).path, tmp_path / "out")
    assert note.startswith("transformers' logits of 47 tokens: difference ")
    assert json.loads((tmp_path / "out/logit_check.json").read_text())["row"]["spread"] > 0.1


def swap_gate_and_up(config, layout, fused):
    """A mapping that writes the two products of the MLP in each other's place, and reads it so."""
    swapped = {"gate": "up", "up": "gate"}
    return [
        entry._replace(hf_name=re.sub("gate|up(?=_proj)", lambda x: swapped[x[0]], entry.hf_name))
        for entry in make_entries(config, layout, fused)
    ]


def interleave_pairs(config, layout, fused):
    """A mapping that writes the pairs in another order, and reads it so."""
    return make_entries(config, "interleaved", fused)


@pytest.mark.parametrize("mapping", [swap_gate_and_up, interleave_pairs])
def test_a_wrong_mapping_is_refused(mapping, tmp_path, monkeypatch):
    run = make_run(tmp_path / "run", changed(PLAIN, num_layers=2))
    with monkeypatch.context() as wrong:
        wrong.setattr("ropewalk.interop.architectures.make_entries", mapping)
        with pytest.raises(ValueError, match="nothing was written"):
            export(run.path, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    export(run.path, tmp_path / "out")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wider(ModelConfig):
    """A model with a field that no class of transformers has."""

    value_norm: bool = False


def test_a_new_field_of_the_model_is_refused_where_it_is_set():
    fields = {x.name: getattr(PLAIN, x.name) for x in dataclasses.fields(PLAIN) if x.init}
    assert choose_architecture(Wider(**fields), CONTEXT).model_type == "llama"
    with pytest.raises(ValueError, match="value_norm=False, and the run has True"):
        choose_architecture(Wider(**fields, value_norm=True), CONTEXT)


def test_a_parameter_without_a_tensor_is_refused(tmp_path, monkeypatch):
    """As a new one of the model: here the entries lack one that is old."""
    run = make_run(tmp_path / "run", PLAIN)

    def without_values(*arguments):
        return [e for e in make_entries(*arguments) if "blocks.attention.value" not in e.ours]

    monkeypatch.setattr("ropewalk.interop.architectures.make_entries", without_values)
    with pytest.raises(ValueError, match=r"LlamaForCausalLM lacks .*attention\.value; train"):
        export(run.path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


DEEP = changed(PLAIN, yarn(2048), num_layers=30, window=4096)
# One error each, in what transformers reads: keys of config.json, and the message.
PLANTED = {
    "none": ({}, None),
    "pairs": ({}, "differ from the run's by"),
    "base": ({"rope_theta": 505.0}, "rotation differs"),
    "temperature": ({"attention_factor": 1.1386 * 1.005}, "scale differs"),
    "window": ({"sliding_window": 4097}, "window differs"),
    "epsilon": ({"rms_norm_eps": 1e-6}, "differ from the run's by"),
}


@pytest.fixture(scope="module")
def deep(tmp_path_factory):
    """The folder of a model with 30 layers of noise and a context of 8,192 tokens."""
    top = tmp_path_factory.mktemp("deep")
    export(make_run(top / "run", DEEP, context=8192).path, top / "out")
    return top / "out"


def plant(folder: Path, keys: dict) -> None:
    """Change keys of a folder's config.json at any depth."""
    path = folder / "config.json"

    def change(value):
        if not isinstance(value, dict):
            return value
        return {name: keys.get(name, change(inner)) for name, inner in value.items()}

    path.write_text(json.dumps(change(json.loads(path.read_text()))))


def interleave(folder: Path, head_dim: int) -> None:
    """Put the queries and keys of a folder in Meta's order."""
    tensors = Tensors(folder)
    arrays = {name: tensors.read(name) for name in tensors.known}
    for name, tensor in arrays.items():
        if "q_proj" in name or "k_proj" in name:
            halves = tensor.reshape(-1, 2, head_dim // 2, tensor.shape[1])
            arrays[name] = np.ascontiguousarray(halves.swapaxes(1, 2).reshape(tensor.shape))
    save_file(arrays, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.hf
@pytest.mark.parametrize("error", PLANTED)
def test_planted_errors_are_detected(error, deep, tmp_path):
    """`hf_config` is correct, so only what transformers reads differs."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    keys, message = PLANTED[error]
    folder = shutil.copytree(deep, tmp_path / "planted")
    config = json.loads((deep / "config.json").read_text())
    plant(folder, keys)
    source = parse_config(config, "the folder", 8192)
    if error == "pairs":  # a wrong layout writes interleaved pairs, and reads them back correctly
        interleave(folder, DEEP.head_dim)
        source = source._replace(layout="interleaved")
    with pytest.raises(ValueError, match=message) if message else contextlib.nullcontext():
        compare_logits(Tensors(folder), config, source, "logits")
