"""Makes each notebook of its text: `make notebooks` after a change of NAME.py, or of the address.

    NAME.py      what is written: cells as jupytext's percent format has them
    NAME.ipynb   what Colab and Jupyter open, without outputs

The badge and the first cell of code are made of `[project.urls] Repository` in pyproject.toml.
"""

import sys
import tomllib
from pathlib import Path

import jupytext
import nbformat

HERE = Path(__file__).parent
BADGE = (
    "[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]"
    "(https://colab.research.google.com/github/{repository}/blob/main/notebooks/{name}.ipynb)"
)
SETUP = """\
# In Colab this fetches the code; elsewhere the code is here already.
import os
import subprocess

REPOSITORY = "{url}"
if os.path.exists("../experiment"):  # opened in the folder of notebooks
    os.chdir("..")
elif not os.path.exists("experiment"):
    if not os.path.exists("ropewalk"):
        subprocess.run(["git", "clone", "-q", "--depth", "1", REPOSITORY, "ropewalk"], check=True)
    os.chdir("ropewalk")

%run notebooks/setup.py
%matplotlib inline"""


def repository() -> str:
    """The address of the code."""
    text = (HERE.parent / "pyproject.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)["project"]["urls"]["Repository"]


def made(path: Path, url: str) -> dict[Path, str]:
    """What `path`, the text of a notebook, and the notebook itself should hold."""
    notebook = jupytext.read(path)
    badge, setup = notebook.cells[0], notebook.cells[2]
    badge.source = BADGE.format(repository=url.partition("github.com/")[2], name=path.stem)
    setup.source = SETUP.format(url=url)
    text = jupytext.writes(notebook, fmt="py:percent")
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
    notebook.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    return {path: text, path.with_suffix(".ipynb"): nbformat.writes(notebook) + "\n"}


def main() -> None:
    """Writes what has changed."""
    for path in sorted(HERE.glob("[0-9]*.py")):
        for file, text in made(path, repository()).items():
            if not file.exists() or file.read_text(encoding="utf-8") != text:
                file.write_text(text, encoding="utf-8")
                print("made", file)


if __name__ == "__main__":
    sys.exit(main())
