"""`import ropewalk` in a program that has modules of its own with our folders' names."""

import fnmatch
import re
import subprocess
import sys
import tomllib

import pytest

from tests import functions_page
from tests.conftest import ROOT
from tests.test_imports import SOURCES

SCRIPT = """
import sys, time
start = time.perf_counter()
import ropewalk
print("jax" in sys.modules)
import utils, model, data
run = ropewalk.load(sys.argv[1])
print(run.logits("import numpy").shape[::2], len(ropewalk.rows(sys.argv[1])))
table = ropewalk.table("rope(base=100)", head_dim=8, context_length=64)
print(table.inv_freq[0, 0].tolist())
print(utils.NAME, model.NAME, data.NAME, sys.modules["utils"] is utils)
print(sys.excepthook is sys.__excepthook__)
"""
TYPES = """
import ropewalk
reveal_type(ropewalk.load("run"))
reveal_type(ropewalk.load("run").logits)
reveal_type(ropewalk.table("nope", head_dim=8, context_length=8).inv_freq)
reveal_type(ropewalk.rows("run"))
reveal_type(ropewalk.audit("config.json"))
"""


@pytest.mark.slow
def test_a_script_keeps_its_own_modules(trained_run, tmp_path, run_script):
    for name in ("utils", "model", "data"):
        (tmp_path / f"{name}.py").write_text(f"NAME = 'the script\\'s {name}'\n")
    (tmp_path / "script.py").write_text(SCRIPT)
    # What an editable install puts on the path.
    done = run_script("script.py", trained_run, cwd=tmp_path, PYTHONPATH=ROOT)
    no_jax, shape, frequencies, names, hook = done.stdout.splitlines()
    assert no_jax == "False" and hook == "True"
    assert shape == "(1, 512) 0"
    # 100^(-2i/8): 1, 100^-0.25, 0.1, 100^-0.75
    expected = [1.0, 0.31622776601683794, 0.1, 0.03162277660168379]
    assert [float(x) for x in frequencies.strip("[]").split(", ")] == pytest.approx(expected)
    assert names == "the script's utils the script's model the script's data True"


@pytest.mark.long
def test_a_type_checker_knows_what_public_functions_return(tmp_path, run_script):
    (tmp_path / "script.py").write_text(TYPES)
    configuration = f'{{"extraPaths": ["{ROOT}"], "include": ["script.py"]}}'
    (tmp_path / "pyrightconfig.json").write_text(configuration)
    command = "-m", "pyright", "--pythonpath", sys.executable
    done = run_script(*command, cwd=tmp_path, check=False)
    types = re.findall(r' is "(.*)"$', done.stdout, re.M)
    assert types[0] == "LoadedRun" and "Array" in types[1]
    assert types[2].startswith("ndarray")
    assert types[3:] == ["list[dict[str, Any]]", "dict[str, Any]"]


def test_every_folder_and_command_is_in_the_package():
    tops = {name.partition(".")[0] for name in SOURCES} - {"ropewalk"}
    links = {
        path.name.removesuffix(".py") for path in (ROOT / "ropewalk").iterdir() if path.is_symlink()
    }
    assert links == tops | {"notebooks"}  # of which a wheel has what notebooks need
    assert (ROOT / "src" / "ropewalk").resolve() == ROOT / "ropewalk"


def test_files_of_a_wheel():
    """Data beside the modules is installed with them."""
    text = (ROOT / "pyproject.toml").read_text()
    patterns = tomllib.loads(text)["tool"]["setuptools"]["package-data"]["*"]
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    tops = {path.name for path in (ROOT / "ropewalk").iterdir() if path.is_dir()} - {"notebooks"}
    files = [line for line in listed.stdout.splitlines() if line.partition("/")[0] in tops]
    data = [file for file in files if not file.endswith((".py", ".sh", ".md"))]
    assert [f for f in data if not any(fnmatch.fnmatch(f, p) for p in patterns)] == []


def test_the_nearest_command_is_named(capsys, monkeypatch):
    from ropewalk.__main__ import main

    monkeypatch.setattr(sys, "argv", ["ropewalk", "evalute"])
    assert main() == 2
    assert capsys.readouterr().err == "ropewalk: no command 'evalute'; did you mean 'evaluate'?\n"


def test_the_page_of_functions_is_that_of_their_docstrings():
    shown = (ROOT / "docs/functions.md").read_text(encoding="utf-8")
    assert shown == functions_page.page()
    assert "| `ropewalk.load(path, step=None)` | Load the run at `path`" in shown
