"""`import ropewalk` in a program that has modules of its own with our folders' names."""

import fnmatch
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.conftest import ROOT

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


def test_only_the_links_for_readers_are_links():
    """A clone without links (Git for Windows) and an unpacked zip lack nothing that runs."""
    listed = subprocess.run(["git", "ls-files", "-s"], cwd=ROOT, capture_output=True, text=True)
    entries = [line.split(maxsplit=3) for line in listed.stdout.splitlines()]
    links = {path for mode, _, _, path in entries if mode == "120000"}
    assert links == {"model", "data", "configs", "tpu"}
    assert all((ROOT / link).resolve() == ROOT / "ropewalk" / link for link in links)


@pytest.fixture(scope="module")
def clone(tmp_path_factory) -> Path:
    """A clone as Git for Windows makes it: a link is a file that names its target."""
    folder = tmp_path_factory.mktemp("clone") / "ropewalk"
    options = "-q", "-c", "core.symlinks=false", "-c", "advice.detachedHead=false"
    subprocess.run(["git", "clone", *options, ROOT, folder], check=True)
    assert (folder / "model").is_file()
    return folder


@pytest.mark.long
def test_a_clone_without_links_trains(clone, run_script):
    done = run_script("train.py", "tiny", "--check", "--workdir", "run", cwd=clone)
    assert "parameters" in done.stdout + done.stderr
    assert run_script("-m", "ropewalk", "train", "--help", cwd=clone).stdout


BUILD = "from setuptools import build_meta as m; m.build_sdist('out'); m.build_wheel('out')"


@pytest.mark.long
def test_a_wheel_trains_and_the_tests_of_an_sdist_run(clone, tmp_path, run_script):
    pytest.importorskip("setuptools", "77")
    run_script("-c", BUILD, cwd=clone)
    (wheel,), (sdist,) = (clone / "out").glob("*.whl"), (clone / "out").glob("*.tar.gz")
    shutil.unpack_archive(wheel, tmp_path / "site", "zip")
    (tmp_path / "empty").mkdir()
    command = "-m", "ropewalk", "train", "tiny", "--check", "--workdir", "run"
    run_script(*command, cwd=tmp_path / "empty", PYTHONPATH=tmp_path / "site")

    shutil.unpack_archive(sdist, tmp_path, filter="data")
    (folder,) = tmp_path.glob("ropewalk-*")
    listed = subprocess.run(["git", "ls-files"], cwd=clone, capture_output=True, text=True)
    others = (".git", "MANIFEST.in", "model", "data", "configs", "tpu")
    files = [x for x in listed.stdout.splitlines() if not x.startswith(others)]
    assert [x for x in files if not (folder / x).is_file()] == []
    tests = "tests/utils/test_files.py", "tests/interop/test_hf_config.py"
    command = "-m", "pytest", "-q", *tests, "-m", "not (slow or long or hf)"
    done = run_script(*command, cwd=folder, check=False)
    assert done.returncode == 0, done.stdout


def test_files_of_a_wheel():
    """Data beside the modules is installed with them."""
    text = (ROOT / "pyproject.toml").read_text()
    patterns = tomllib.loads(text)["tool"]["setuptools"]["package-data"]["*"]
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    files = [line for line in listed.stdout.splitlines() if line.startswith("ropewalk/")]
    data = [file for file in files if not file.endswith((".py", ".md"))]
    assert [f for f in data if not any(fnmatch.fnmatch(Path(f).name, p) for p in patterns)] == []


def test_the_nearest_command_is_named(capsys, monkeypatch):
    from ropewalk.__main__ import main

    monkeypatch.setattr(sys, "argv", ["ropewalk", "evalute"])
    assert main() == 2
    assert capsys.readouterr().err == "ropewalk: no command 'evalute'; did you mean 'evaluate'?\n"
