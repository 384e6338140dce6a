"""Every notebook from top to bottom, small, and again, as after a disconnect."""

import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import ropewalk
from ropewalk.interop.export import export
from ropewalk.utils import notebook as setup
from tests.conftest import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
# Parameters that replace a notebook's own.
FEW = "train.num_steps=20 train.save_every=10 train.warmup_steps=2 evals.documents=8"
SMALL = {
    "00_one_update": {"UPDATES": 2},
    "01_attention": {"DOCUMENTS": 8},
    "02_effective_context": {"SETTINGS": FEW},
    "03_own_frequencies": {"SETTINGS": FEW},
    "04_published_model": {"TASK": "lagcopy", "LENGTHS": "64,128", "DOCUMENTS": 8},
}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_small_and_begin_with_three_lines(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert all(cell["execution_count"] is None for cell in code)
    text = path.read_text(encoding="utf-8")
    assert len(text) < 250_000 and not re.search(r"/(root|home|tmp|opt|work)/|WARNING", text)
    assert len(code[0]["source"]) == 3
    assert all(len(re.findall(r"step \d+/", json.dumps(cell["outputs"]))) <= 1 for cell in code)
    badge = "".join(cells[0]["source"])
    address = ropewalk.REPOSITORY.partition("github.com/")[2]
    assert (f"/github/{address}/blob/main/notebooks/{path.name})" in badge) == (address != "")


# Where a notebook lies, and the folder that its first cell enters.
PLACES = {
    "clone": "CODE",
    "clone/notebooks": "CODE",
    "beside a clone": "HERE/ropewalk",
    "with an address": "HERE/ropewalk",
    "beside a zip": "HERE/ropewalk-code",
    "beside a zip of GitHub": "HERE/ropewalk-code/ropewalk-main",
    "nowhere": "No module named 'ropewalk'",
}


@pytest.mark.parametrize(
    "place",
    [pytest.param(p, marks=[pytest.mark.notebook] * (p == "with an address")) for p in PLACES],
)
def test_the_first_cell_changes_to_the_code(place, tmp_path):
    """It finds the code again after a restart of the kernel."""
    code = tmp_path / "clone"
    shutil.copytree(ROOT / "ropewalk/utils", code / "ropewalk/utils")
    shutil.copy(ROOT / "ropewalk/__init__.py", code / "ropewalk")
    (code / "notebooks").mkdir()
    (code / "pyproject.toml").write_text("[project]\ndependencies = []")
    (code / "notebooks/one.py").touch()
    git = ["git", "-C", str(code), "-c", "user.name=n", "-c", "user.email=e"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "All"]):
        subprocess.run([*git, *command], check=True)
    (folder := tmp_path / place).mkdir(exist_ok=True)
    if place == "beside a clone":
        subprocess.run([*git, "clone", "-q", str(code), str(folder / "ropewalk")], check=True)
    archive = {"beside a zip": "ropewalk.zip", "beside a zip of GitHub": "ropewalk-main.zip"}
    if place in archive:
        prefix = ["--prefix=ropewalk-main/"] if "GitHub" in place else []
        file = str(folder / archive[place])
        subprocess.run([*git, "archive", *prefix, "-o", file, "HEAD"], check=True)
    first = json.loads(NOTEBOOKS[0].read_text(encoding="utf-8"))["cells"][2]["source"]
    if place == "with an address":
        from notebooks import make

        first = make.CLONE.replace("ADDRESS", str(code))
    script = "".join(
        [*first, "\nimport os, ropewalk\nprint(os.getcwd(), os.path.realpath(ropewalk.__file__))"]
    )
    expected = PLACES[place].replace("HERE", str(folder)).replace("CODE", str(code))
    is_found = place != "nowhere"
    python = [sys.executable] if is_found else [sys.executable, "-S"]  # it may be installed
    for _ in range(2):
        done = subprocess.run([*python, "-c", script], cwd=folder, text=True, capture_output=True)
        assert done.stdout == f"{expected} {expected}/ropewalk/__init__.py\n" * is_found, (
            done.stderr
        )
        assert is_found or expected in done.stderr


def test_all_requirements_are_installed():
    """This holds for the lock and for Colab's versions, so the notebooks install nothing."""
    wanted = setup.required(ROOT)
    names = {requirement.name for requirement in wanted}
    assert len(names) == len(wanted) and names >= {"jax", "flax", "grain", "sentencepiece"}
    assert setup.missing(wanted) == []
    setup.check(wanted)


@pytest.mark.notebook
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_up_to_date(path):
    from notebooks import make

    files = make.generate(path.with_suffix(".py"))
    assert {file: file.read_text(encoding="utf-8") for file in files} == files, "make notebooks"
    _, notebook = make.generate(path.with_suffix(".py"), "https://github.com/me/here").values()
    assert f"/github/me/here/blob/main/notebooks/{path.name})" in notebook
    assert "git clone -q https://github.com/me/here ropewalk" in notebook


@pytest.mark.notebook
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run_and_continue(
    path, tmp_path, tiny_data, trained_run, environment, monkeypatch
):
    """In a folder that holds the notebook and a zip only."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    (work := tmp_path / "work").mkdir()
    (alone := tmp_path / "alone").mkdir()
    listed = ["git", "ls-files", "ropewalk", "notebooks", "pyproject.toml"]
    files = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    with zipfile.ZipFile(alone / "ropewalk.zip", "w") as archive:
        for file in files.splitlines():
            archive.write(ROOT / file, file)
    path = shutil.copy(path, alone / path.name)
    here = f"\nimport ropewalk\nassert {str(alone)!r} in ropewalk.__file__"
    parameters = SMALL[path.stem] | {"WORKDIR": str(work)}
    if "SETTINGS" in parameters:
        parameters["SETTINGS"] += f" {tiny_data[0]}"
    if "TASK" in parameters:
        export(trained_run, tmp_path / "model")
        parameters["MODEL"] = str(tmp_path / "model")
    least = 0 if "UPDATES" in parameters else 2 + ("TASK" in parameters)  # pictures
    assert run(path, parameters, here) >= least
    if before := saved(work):
        run(path, parameters, here)
        assert saved(work) == before  # the second run trains nothing


# Colab and the hub, of which only the download is replaced: it is a folder in the hub's format.
IN_COLAB = """
import sys, types
colab = sys.modules["google.colab"] = types.ModuleType("google.colab")
colab.output = None  # JAX imports it
colab.__spec__ = sys.__spec__  # transformers asks for it
try:
    import huggingface_hub as hub  # of which transformers, where it is installed, needs more
except ImportError:
    hub = sys.modules["huggingface_hub"] = types.ModuleType("huggingface_hub")
hub.snapshot_download = lambda name, allow_patterns: FOLDER
"""


@pytest.mark.notebook
def test_a_model_of_the_hub_is_imported_in_colab(tmp_path, trained_run, environment, monkeypatch):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    export(trained_run, tmp_path / "model")
    folders = {"WORKDIR": str(tmp_path), "FOLDER": str(tmp_path / "model")}
    parameters = SMALL["04_published_model"] | folders
    assert run(ROOT / "notebooks/04_published_model.ipynb", parameters, IN_COLAB) >= 3
    assert (tmp_path / "run" / "results.jsonl").exists()


def run(path: Path, parameters: dict, more: str = "") -> int:
    """Run a notebook like Jupyter, in its folder; return the number of its pictures."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    tags = [cell.metadata.get("tags", []) for cell in notebook.cells]
    lines = "\n".join(f"{name} = {value!r}" for name, value in parameters.items())
    notebook.cells.insert(tags.index(["parameters"]) + 1, nbformat.v4.new_code_cell(lines + more))
    where = {"metadata": {"path": str(path.parent)}}
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources=where).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    # An error of `%run` or of a display does not end the notebook.
    assert not [output for output in outputs if output["output_type"] == "error"]
    return sum("image/png" in output.get("data", {}) for output in outputs)


def saved(folder: Path) -> dict[str, int]:
    """Return the write times of the arrays of checkpoints."""
    return {str(file): file.stat().st_mtime_ns for file in folder.rglob("checkpoints/*/params/d/*")}
