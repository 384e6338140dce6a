"""Exported folders, read by transformers (marked `hf`) and by the reference in numpy."""

import contextlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from interop.architectures import ARCHITECTURES
from interop.check import (
    FolderModel,
    check_comparisons,
    compare_logits,
)
from interop.export import export
from interop.reference import compute_logits
from interop.tensors import Tensors
from interop.weights import make_entries
from tests.interop.weights_helpers import (
    CASES,
    CONTEXT,
    EACH_CASE,
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


@pytest.mark.parametrize("name", EACH_CASE)
def test_class_and_rope_type(name, folders):
    config = read_config(folders(name))
    model_type, rope_type, _ = CASES[name]
    assert config["model_type"] == model_type
    assert config["architectures"] == [ARCHITECTURES[model_type].class_name]
    if rope_type:
        assert config["rope_parameters"]["rope_type"] == rope_type


@pytest.mark.parametrize("name", EACH_CASE)
def test_reference_logits_equal_ours(name, folders):
    """At four times the context; without transformers."""
    folder, model = folders(name), CASES[name][2]
    tensors, config = Tensors(folder), read_config(folder)
    ours_BTV = our_logits(model, noise(model), tokens(4 * CONTEXT))
    for row, ours_TV in zip(tokens(4 * CONTEXT), ours_BTV, strict=True):
        theirs_TV = compute_logits(tensors, config, row, np.arange(len(row)))
        np.testing.assert_allclose(theirs_TV, ours_TV, atol=1e-4)
    assert ours_BTV.std() > 0.5  # else everything is close to everything


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
    monkeypatch.setattr("interop.check.compute_our_logits", lambda *arguments: np.zeros(1))
    with pytest.raises(ValueError, match="nothing was written"):
        export(run.path, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


DEEP = changed(PLAIN, SLOWED.format(2048, ""), num_layers=30, window=4096)
# One error each, in what transformers reads: keys of config.json, and the message.
PLANTED = {
    "none": ({}, None),
    "pairs": ({}, "differ from the run's by"),
    "base": ({"rope_theta": 505.0}, "other angles"),
    "temperature": ({"attention_factor": 1.1386 * 1.005}, "another temperature"),
    "window": ({"sliding_window": 4097}, "attends to 4097 tokens"),
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
    """At 32,768 tokens. `hf_config` is correct, so only what transformers reads differs."""
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
        check_comparisons(compare_logits(model, [32_768]), "logits")
