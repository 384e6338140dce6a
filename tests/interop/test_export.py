"""Exported folders, read by transformers (marked `hf`) and read back."""

import contextlib
import dataclasses
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from interop.architectures import ARCHITECTURES, choose_architecture
from interop.check import FolderModel, check_comparison, compare_logits
from interop.export import export
from interop.tensors import Tensors
from interop.weights import make_entries
from model.config import ModelConfig
from tests.interop.weights_helpers import (
    CASES,
    CONTEXT,
    PLAIN,
    QUICK,
    SLOWED,
    changed,
    interleave,
    make_run,
    noise,
    our_logits,
    plant,
)

# Slow: a program is compiled for every class.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Return a function from a case's name to its folder; each is exported once."""
    exported: dict[str, Path] = {}

    def folder_of(name: str) -> Path:
        if name not in exported:
            top = tmp_path_factory.mktemp("case")
            run = make_run(top / "run", CASES[name][2])
            export(run.path, top / "out")
            exported[name] = top / "out"
        return exported[name]

    return folder_of


def read_config(folder: Path) -> dict:
    return json.loads((folder / "config.json").read_text())


def tokens(length: int) -> np.ndarray:
    return np.random.default_rng(3).integers(0, PLAIN.vocab_size, (2, length))


@pytest.mark.hf
@pytest.mark.parametrize(
    "name, length",
    [
        pytest.param(
            name, length, marks=[] if name in QUICK and length > CONTEXT else [pytest.mark.long]
        )
        for name in CASES
        for length in (CONTEXT, 4 * CONTEXT)
    ],
)
def test_transformers_logits_equal_ours(name, length, folders):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.set_num_threads(1)
    model = CASES[name][2]
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        folders(name), dtype=torch.float32, attn_implementation="eager"
    )
    assert type(theirs).__name__ == ARCHITECTURES[CASES[name][0]].class_name
    with torch.no_grad():
        theirs_BTV = theirs(torch.from_numpy(tokens(length))).logits.numpy()
    ours_BTV = our_logits(model, noise(model), tokens(length))
    # Float32 angles of transformers drift; Gemma's logits have a spread of 4.
    np.testing.assert_allclose(theirs_BTV, ours_BTV, atol=1e-4 * max(1, theirs_BTV.std()))


def test_shards_have_the_same_tensors(tmp_path):
    run = make_run(tmp_path / "run", PLAIN)
    export(run.path, tmp_path / "one")
    export(run.path, tmp_path / "many", shard_bytes=20_000)
    single, many = Tensors(tmp_path / "one"), Tensors(tmp_path / "many")
    assert len(list((tmp_path / "many").glob("*.safetensors"))) > 3
    assert single.known == many.known
    for name in single.known:
        np.testing.assert_array_equal(single.read(name), many.read(name))


def test_failed_export_leaves_no_files(tmp_path, monkeypatch):
    run = make_run(tmp_path / "run", changed(PLAIN, num_layers=1))
    zeros = lambda model, tokens_T, positions_T: np.zeros((len(tokens_T), 96))  # noqa: E731
    monkeypatch.setattr("interop.check.compute_our_logits", zeros)
    with pytest.raises(ValueError, match="nothing was written"):
        export(run.path, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


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
@pytest.mark.parametrize(
    "has_transformers", [False, pytest.param(True, marks=pytest.mark.hf)], ids=["back", "hf"]
)
def test_a_wrong_mapping_is_refused(mapping, has_transformers, tmp_path, monkeypatch):
    """With transformers and without it."""
    if has_transformers:
        pytest.importorskip("transformers")
    monkeypatch.setattr("interop.check.has_transformers", lambda: has_transformers)
    run = make_run(tmp_path / "run", changed(PLAIN, num_layers=2))
    with monkeypatch.context() as wrong:
        wrong.setattr("interop.architectures.make_entries", mapping)
        with pytest.raises(ValueError, match=r"differ from the run's by .* nothing was written"):
            export(run.path, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    export(run.path, tmp_path / "out")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wider(ModelConfig):
    """A model with a field that no class of transformers has."""

    value_norm: bool = False


def test_a_new_field_of_the_model_is_refused_where_it_is_set():
    fields = {x.name: getattr(PLAIN, x.name) for x in dataclasses.fields(PLAIN) if x.init}
    assert choose_architecture(Wider(**fields)).model_type == "llama"
    with pytest.raises(ValueError, match="value_norm=True"):
        choose_architecture(Wider(**fields, value_norm=True))


def test_a_parameter_without_a_tensor_is_refused(tmp_path, monkeypatch):
    """As a new one of the model: here the entries lack one that is old."""
    run = make_run(tmp_path / "run", PLAIN)

    def without_values(*arguments):
        return [e for e in make_entries(*arguments) if "blocks.attention.value" not in e.ours]

    monkeypatch.setattr("interop.architectures.make_entries", without_values)
    with pytest.raises(ValueError, match=r"LlamaForCausalLM lacks .*attention\.value; train"):
        export(run.path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


DEEP = changed(PLAIN, SLOWED.format(2048, ""), num_layers=30, window=4096)
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


@pytest.mark.hf
@pytest.mark.parametrize("error", PLANTED)
def test_planted_errors_are_detected(error, deep, tmp_path):
    """`hf_config` is correct, so only what transformers reads differs."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    keys, message = PLANTED[error]
    config, folder = read_config(deep), shutil.copytree(deep, tmp_path / "planted")
    plant(folder, keys)
    # Entries with a wrong layout write interleaved pairs, and read them back correctly.
    entries = make_entries(DEEP, "interleaved" if error == "pairs" else "half")
    if error == "pairs":
        interleave(folder, DEEP.head_dim)
    model = FolderModel(Tensors(folder), config, DEEP, 8192, entries)
    with pytest.raises(ValueError, match=message) if message else contextlib.nullcontext():
        check_comparison(compare_logits(model), "logits")
