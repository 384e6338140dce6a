"""`python -m interop` from end to end."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from ropewalk.experiment import load
from ropewalk.experiment.run import RunDirectory
from ropewalk.interop.__main__ import main
from ropewalk.interop.export import export
from ropewalk.interop.importing import import_folder
from tests.conftest import ROOT
from tests.damage import flip
from tests.interop.weights_helpers import PLAIN, changed, make_run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run with a tokenizer of 512 ids."""
    path = make_run(tmp_path_factory.mktemp("run") / "plain", changed(PLAIN, vocab_size=512)).path
    tokenizer = ROOT / "notebooks/runs/base=10,num_heads=1/tokenizer.model"
    shutil.copy(tokenizer, path / "tokenizer.model")
    return path


@pytest.fixture(scope="module")
def exported(run) -> Path:
    export(run, run.with_name("exported"))
    return run.with_name("exported")


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("model.safetensors", None),  # the last bit
        *(("config.json", b"attention_bias"), ("tokenizer.json", b"merges")),
        *(("tokenizer.model", b"\x01"), ("tokenizer_config.json", b"tokenizer_class")),
    ],
)
def test_a_changed_bit_of_any_file_of_an_export_is_refused(name, part, exported, tmp_path):
    shutil.copytree(exported, tmp_path / "out")
    path = tmp_path / "out" / name
    content = path.read_bytes()
    position = content.index(part) if part else len(content) - 1
    flip(path, 8 * position)
    with pytest.raises(ValueError, match=r"ha(s|ve) changed since logit_check\.json"):
        import_folder(tmp_path / "out", tmp_path / "back", compare=False)
    assert not list(tmp_path.glob("back*"))


def test_export_and_import_commands(run, tmp_path, capsys):
    out, back = str(tmp_path / "plain-hf"), str(tmp_path / "back")
    assert main(["export", str(run), out, "--dtype", "bfloat16", "--shard-gib", "0.0001"]) == 0
    assert "Logits were not compared" in capsys.readouterr().err
    config = json.loads((tmp_path / "plain-hf/config.json").read_text())
    assert (config["bos_token_id"], config["eos_token_id"]) == (1, 2)
    assert config["dtype"] == config["torch_dtype"] == "bfloat16"
    assert len(list((tmp_path / "plain-hf").glob("model-*.safetensors"))) > 1
    assert main(["import", out, back, "--context-length", "32"]) == 0
    assert "rope(base=500" in capsys.readouterr().err
    ours, theirs = load(run), load(back)
    assert theirs.config.data.context_length == 32
    assert theirs.tokenizer == ours.tokenizer
    assert not RunDirectory(tmp_path / "back").unfinished  # as pages would mark it
    logits = ours.logits("import numpy")
    assert np.abs(np.asarray(theirs.logits("import numpy")) - logits).max() < 0.2  # rounded
