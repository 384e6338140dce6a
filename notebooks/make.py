"""Generates the notebooks: run `make notebooks` after a change of NAME.py or of the repository URL.

    NAME.py      source: cells in jupytext's percent format
    NAME.ipynb   generated notebook for Colab and Jupyter, with outputs

A notebook whose code has changed is run in a kernel. Its pictures are stored in 256 colors and at
most `WIDTH` pixels wide, and pages of more than `LARGEST` characters as a sentence.

The first cells are generated from `ropewalk.REPOSITORY`: with an address, a badge opens the
notebook in Colab, and the first code cell clones the repository there.
"""

import base64
import io
import sys
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from PIL import Image

from ropewalk import REPOSITORY

HERE = Path(__file__).parent
BADGE = (
    "[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]"
    "(https://colab.research.google.com/github/{repository}/blob/main/notebooks/{name}.ipynb)"
)
NO_BADGE = "To open this notebook in Jupyter or Colab, see `docs/installation.md`."
SETUP = """\
import glob, sys  # ropewalk is this clone, or a zip of it beside this notebook
sys.path += ["..", *glob.glob("ropewalk*"), *(f"{z}/{z[:-4]}" for z in glob.glob("ropewalk*.zip"))]
from ropewalk.utils.notebook import setup; setup()"""
CLONE = """\
import os, sys  # ropewalk is this clone, or is cloned beside this notebook
any(map(os.path.exists, ["ropewalk", "../ropewalk"])) or os.system("git clone -q ADDRESS ropewalk")
sys.path += ["..", "ropewalk"]; from ropewalk.utils.notebook import setup; setup()"""

WIDTH, LARGEST = 700, 100_000


def generate(path: Path, url: str = REPOSITORY) -> dict[Path, str]:
    """Return the contents of a notebook's source `path` and of its notebook, by path.

    A cell keeps the outputs that it has in the notebook.
    """
    notebook = jupytext.read(path)
    badge, setup = notebook.cells[0], notebook.cells[2]
    repository = url.partition("github.com/")[2]
    badge.source = BADGE.format(repository=repository, name=path.stem) if url else NO_BADGE
    setup.source = "# notebooks/make.py writes this cell, which finds the package."
    text = jupytext.writes(notebook, fmt="py:percent")
    setup.source = CLONE.replace("ADDRESS", url) if url else SETUP
    file = path.with_suffix(".ipynb")
    before = nbformat.read(file, as_version=4).cells if file.exists() else []
    outputs = {cell.source: cell.get("outputs", []) for cell in before}
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        if cell.cell_type == "code":
            cell.outputs = outputs.get(cell.source, [])
    notebook.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    return {path: text, file: nbformat.writes(notebook) + "\n"}


def execute(file: Path) -> None:
    """Run a notebook in its folder, and store its outputs in it."""
    notebook = nbformat.read(file, as_version=4)
    where = {"metadata": {"path": str(file.parent)}}
    NotebookClient(notebook, timeout=None, kernel_name="python3", resources=where).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.execution_count = None
            cell.outputs = [shrink(output) for output in cell.outputs if not is_blank(output)]
    notebook.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    file.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")


def is_blank(output: nbformat.NotebookNode) -> bool:
    """Return whether an output shows nothing (a finished bar) or a machine's warnings."""
    texts = output.get("text", ""), output.get("data", {}).get("text/plain", "")
    return output.get("name") == "stderr" or not "".join(texts).strip()


def shrink(output: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Return an output without counts and large parts."""
    data = output.get("data", {})
    if "execution_count" in output:
        output.execution_count = None
    if "image/png" in data:
        picture = Image.open(io.BytesIO(base64.b64decode(data["image/png"]))).convert("RGB")
        picture.thumbnail((WIDTH, 10_000))
        png = io.BytesIO()
        picture.quantize(256, Image.Quantize.MAXCOVERAGE).save(png, "png", optimize=True)
        data["image/png"] = base64.b64encode(png.getvalue()).decode()
    if len(data.get("text/html", "")) > LARGEST:
        data["text/html"] = "<em>An interactive page: run the cell to see it.</em>"
    return output


def code_of(file: Path) -> list[str]:
    """Return the sources of a notebook's code cells after the first, which finds the package."""
    cells = nbformat.read(file, as_version=4).cells if file.exists() else []
    return [cell.source for cell in cells if cell.cell_type == "code"][1:]


def main() -> None:
    """Write the files that have changed, and run notebooks whose code has."""
    for path in sorted(HERE.glob("[0-9]*.py")):
        file = path.with_suffix(".ipynb")
        before = code_of(file)
        for changed, text in generate(path).items():
            if not changed.exists() or changed.read_text(encoding="utf-8") != text:
                changed.write_text(text, encoding="utf-8")
                print("wrote", changed)
        if code_of(file) != before:
            print("running", file)
            execute(file)


if __name__ == "__main__":
    sys.exit(main())
