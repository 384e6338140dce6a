"""Runs made long ago restore, evaluate and train on as they did: `tests/data/witness/make.sh`."""

import hashlib
import json
import tarfile
from pathlib import Path

import jax
import numpy as np
import pytest

from ropewalk.experiment.checkpoint import restore_params
from ropewalk.experiment.run import RunDirectory
from tests.in_process import call

WITNESS = Path(__file__).parent / "data/witness/witness.tar.xz"

# Of the parameters of each checkpoint: sha256 over names, shapes and bytes, 128 bits of it.
DIGESTS = {
    ("sweep/rotary=rope(base=100)", 12): "f37dfa629bbaad9c8db1f47a9e03151d",
    ("sweep/rotary=rope(base=30)+nope", 12): "2554f941206d3c9c40298ecbedce004e",
    ("mla", 12): "cf7164f052910b5bc8a3537fe47b20b5",
    ("stages", 6): "6b8045f6c454fe5391f1d0c73317025d",
    ("stages", 10): "9f3f84378173d35fcc93cd8d889f4d1f",
}
RUNS = sorted({run for run, _ in DIGESTS})


@pytest.fixture(scope="module")
def witness(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("witness")
    with tarfile.open(WITNESS) as archive:
        archive.extractall(folder, filter="data")
    return folder


def digest(params) -> str:
    hasher = hashlib.sha256()
    for path, leaf in sorted(
        (jax.tree_util.keystr(path, simple=True, separator="."), leaf)
        for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]
    ):
        hasher.update(f"{path} {leaf.shape} {leaf.dtype}".encode() + np.asarray(leaf).tobytes())
    return hasher.hexdigest()[:32]


@pytest.mark.parametrize("run, step", DIGESTS)
def test_parameters_are_restored_bit_for_bit(witness, run, step):
    params, restored = restore_params(RunDirectory(witness / run), step)
    assert restored == step
    assert digest(params) == DIGESTS[run, step]


def rows_of(path: Path) -> dict[tuple, dict]:
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    key = ("task", "step", "length", "document", "query")
    for row in rows:
        row.pop("file", None)  # position and digest, which older rows do not have
    return {tuple(row[name] for name in key): row for row in rows}


@pytest.mark.slow
def test_rows_are_the_same(witness):
    """Tokens, distances and answers to the last bit; likelihoods as far as float32 carries."""
    before = {run: rows_of(witness / run / "results.jsonl") for run in RUNS}
    for run in RUNS:
        (witness / run / "results.jsonl").unlink()
    call("evaluate.py", witness / "sweep", witness / "mla")
    call("evaluate.py", witness / "stages", "--step", "6,10")
    for run in RUNS:
        after = rows_of(witness / run / "results.jsonl")
        assert after.keys() == before[run].keys()
        for key, row in after.items():
            old = before[run][key]
            assert row.pop("nll") == pytest.approx(old.pop("nll"), abs=1e-5)
            assert row == old


@pytest.mark.long
def test_training_goes_on_as_it_did(witness, tiny_data):
    """The last steps' checkpoints were removed; metrics.jsonl kept what their losses were."""
    before = {run: RunDirectory(witness / run).read_metrics() for run in RUNS}
    for folder in ("sweep", "mla", "stages"):
        if (witness / folder / "sweep.json").exists():
            record = json.loads((witness / folder / "sweep.json").read_text(encoding="utf-8"))
            command = ["sweep.py", record["config"], *record["overrides"]]
        else:
            record = json.loads((witness / folder / "config.json").read_text(encoding="utf-8"))
            command = ["train.py", record["config"]["name"], *record["overrides"]]
        call(*command, *tiny_data, "--workdir", witness / folder)
    for run in RUNS:
        after = RunDirectory(witness / run).read_metrics()
        assert [row["step"] for row in after] == [row["step"] for row in before[run]]
        for row, old in zip(after, before[run], strict=True):
            for name in ("loss", "grad_norm", "learning_rate"):
                assert row[name] == pytest.approx(old[name], abs=1e-5), (run, row["step"], name)
