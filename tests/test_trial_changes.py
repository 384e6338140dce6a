"""The files that CONTRIBUTING describes, in a copy of the tree: a variant, a task and a source.

Every command must accept all three together, and nothing else may know their names.
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
    **{f"text/{number:03}.txt": plain_text(number) for number in range(200)},
}


@pytest.mark.long
def test_three_new_files_train_check_evaluate_and_export(tmp_path, run_script):
    tree = tmp_path / "tree"
    ignore = shutil.ignore_patterns("runs", ".*", "__pycache__", "tests")
    shutil.copytree(ROOT, tree, ignore=ignore, symlinks=True)
    (tree / "text").mkdir()
    for name, content in FILES.items():
        (tree / name).write_text(content)

    def run(*arguments) -> str:
        return run_script(*arguments, cwd=tree).stdout

    new = ["train.py", "tiny", "model.rotary=bent(strength=2)", "data.source=texts"]
    new += ["data.path=text", "train.num_steps=2", "--workdir", "runs/new"]
    size = sum(path.stat().st_size for path in (tree / "text").iterdir())
    assert f"train: 200 files, {size:,} bytes: 000.txt, 001.txt" in run(*new, "--check")
    assert "documents" in run("-m", "ropewalk", "prepare", "--source", "texts", "--path", "text")
    run(*new)
    run("evaluate.py", "runs/new", "--tasks", "echo,perplexity", "--documents", "2")
    rows = (tree / "runs" / "new" / "results.jsonl").read_text().splitlines()
    assert {json.loads(row)["task"] for row in rows} >= {"echo", "perplexity"}
    run("-m", "ropewalk", "export", "runs/new", "hf-new")
