"""The changes that CONTRIBUTING describes and the two that researchers make, in a copy of the tree.

A variant, a task and a source are one new file each; a feature of attention and an optimizer are a
few lines. Every command must accept all five together, and none may know their names elsewhere.
"""

import json
import shutil

import pytest

from tests.conftest import ROOT
from tests.data.helpers import NEW_SOURCE, plain_text
from tests.evals.test_new_task import ECHO
from tests.test_own_variant import BENT

FILES = {
    "model/rotary/bent.py": BENT,
    "evals/tasks/echo.py": ECHO,
    "data/sources/texts.py": NEW_SOURCE,
}
# A file, a text in it, and the lines to put before it.
EDITS = [
    ("model/config.py", "    qkv_bias: bool = False\n", "    value_norm: bool = False\n"),
    (
        "model/attention.py",
        "        if config.shift_keys:\n            self.shift",
        "        if config.value_norm:\n            self.value_norm = Norm(config, H)\n",
    ),
    (
        "model/attention.py",
        "        return q_BTNH, k_BSKH, v_BSKH\n\n    def _norm",
        "        if self.config.value_norm:\n            v_BSKH = self.value_norm(v_BSKH)\n",
    ),
    (
        "experiment/config.py",
        "    weight_decay: Annotated",
        '    optimizer: Literal["adamw", "muon"] = "adamw"\n',
    ),
    (
        "training/optimizer.py",
        "    adamw = optax.chain(\n",
        '    if config.optimizer == "muon":\n'
        "        return optax.contrib.muon(learning_rate=-1.0)\n",
    ),
    ("training/optimizer.py", "import optax\n", "import optax.contrib\n"),
]


@pytest.fixture
def changed_tree(tmp_path):
    tree = tmp_path / "tree"
    ignore = shutil.ignore_patterns("runs", ".*", "__pycache__", "tests")
    shutil.copytree(ROOT, tree, ignore=ignore, symlinks=True)
    for name, content in FILES.items():
        (tree / name).write_text(content)
    for name, line, addition in EDITS:
        text = (tree / name).read_text()
        assert text.count(line) == 1, f"{name} changed: repair the trial change"
        (tree / name).write_text(text.replace(line, addition + line))
    return tree


@pytest.mark.long
def test_five_changes_train_check_evaluate_and_export(changed_tree, run_script):
    (changed_tree / "text").mkdir()
    for number in range(200):
        (changed_tree / "text" / f"{number:03}.txt").write_text(plain_text(number))

    def run(*arguments, status=0):
        done = run_script(*arguments, cwd=changed_tree, check=False)
        assert done.returncode == status, done.stderr
        return done

    new = ["train.py", "tiny", "model.rotary=bent(strength=2)", "data.source=texts"]
    new += ["data.path=text", "train.num_steps=2", "train.optimizer=muon"]
    new += ["--workdir", "runs/new", "model.value_norm=true"]
    lines = run(*new, "--check").stdout.splitlines()
    size = sum(path.stat().st_size for path in (changed_tree / "text").iterdir())
    (files,) = [line for line in lines if line.startswith("data.source=texts: train: ")]
    assert f"200 files, {size:,} bytes: 000.txt, 001.txt" in files
    prepared = run("-m", "data.prepare", "--source", "texts", "--path", "text").stdout
    assert "documents" in prepared
    run(*new)
    run("evaluate.py", "runs/new", "--tasks", "echo,perplexity", "--documents", "2")
    rows = (changed_tree / "runs" / "new" / "results.jsonl").read_text().splitlines()
    assert {json.loads(row)["task"] for row in rows} >= {"echo", "perplexity"}
    refused = run("-m", "interop", "export", "runs/new", "hf-new", status=2).stderr
    assert "value_norm" in refused and "Traceback" not in refused
    assert not (changed_tree / "hf-new").exists()
