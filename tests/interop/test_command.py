"""`python -m interop` from end to end."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from ropewalk.evals.rows import SCHEMA, add, columns
from ropewalk.experiment import load
from ropewalk.experiment.checkpoint import leaves_by_name, write_params
from ropewalk.experiment.identity import run_id
from ropewalk.experiment.run import RunDirectory
from ropewalk.interop.__main__ import main
from ropewalk.interop.export import export
from ropewalk.interop.importing import import_folder
from tests.conftest import ROOT
from tests.damage import flip
from tests.interop.weights_helpers import PLAIN, changed, make_run, noise

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


def test_a_card_has_losses_and_results_and_no_local_path(run, tmp_path, capsys):
    """The files of an export can be read by others, too."""
    shutil.copytree(run, tmp_path / "run")
    rows = [
        {"step": 0, "tokens": 1, "loss": 2.5, "val_loss": 2.75},
        {"step": 9, "tokens": 1, "loss": 1.5},
    ]
    (tmp_path / "run/metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in rows))
    copied = RunDirectory(tmp_path / "run")
    copied.record_command(f"ropewalk train tiny --workdir {tmp_path}/run --own '/my code/x.py'")
    values = {str: "kv", int: 2, float: 0.5, bool: True}
    row = {name: values[kind] for name, kind in SCHEMA.items()} | {"step": 0, "length": 64}
    row |= {"run_id": run_id(copied, 0), "rank": 0, "query": 0, "distance": 8}
    other = row | {
        "query": 1,
        "nll": 1.0,
        "exact_match": False,
        "first_token_correct": False,
        "rank": 1,
    }
    add(copied.results_path, columns([row, other]))
    out = str(tmp_path / "out")
    with pytest.raises(SystemExit):
        main(["export", str(copied.path), out, "--hub", "no-user"])
    assert main(["export", str(copied.path), out, "--hub", "me/small"]) == 0
    assert f"\nNext: hf upload me/small {out}\n" in capsys.readouterr().err
    card = (tmp_path / "out/README.md").read_text()
    assert "\n# me/small\n" in card and '"text-generation", "me/small")' in card
    assert "\nlicense: unknown\n" in card and "dataset: source `" in card
    assert "optimizer adamw, peak learning rate" in card
    assert "rotary variant: `rope(base=500)`" in card
    assert "2.5000 nats per token: `loss` at step 0" in card and "2.7500 nats" in card
    l50 = "(NOT_LEARNED|TOO_FEW_ANSWERS.*)"  # two answers say nothing
    assert re.search(rf"\| `kv` \| 64 \| `kv` \| 2 \| 0.500 \| 0.7500 \| {l50} \|\n", card)
    assert "ropewalk train tiny --workdir run --own x.py\n" in card
    assert str(tmp_path) not in card and "/my" not in card
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "out").iterdir()}
    assert modes == {0o644}


def test_float16_refuses_what_it_cannot_hold(tmp_path, capsys):
    """Its least number is 6e-8, so weights below half of it are 0."""
    run = make_run(tmp_path / "run", changed(PLAIN, num_layers=1))
    leaves = leaves_by_name(noise(changed(PLAIN, num_layers=1)))
    leaves["blocks.mlp.up"][0, 0, :3] = 1e-7, 2e-8, -1e-8
    write_params(run, 1, leaves.items(), list(leaves))
    export(run.path, tmp_path / "small", dtype="float16")
    line = "--dtype float16: 2 weights so small that float16 makes them 0; give --dtype bfloat16"
    assert line in capsys.readouterr().err
    leaves["blocks.mlp.up"][0, 0, 0] = 1e5
    write_params(run, 2, leaves.items(), list(leaves))
    with pytest.raises(ValueError, match=r"mlp\.up has values up to 100000, .* --dtype bfloat16"):
        export(run.path, tmp_path / "out", dtype="float16")
    leaves["final_norm.scale"][0] = np.nan  # of a run that has diverged
    write_params(run, 9, leaves.items(), list(leaves))
    with pytest.raises(ValueError, match=r"final_norm\.scale has NaN .* an earlier --step"):
        export(run.path, tmp_path / "out")


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
