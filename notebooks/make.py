"""Generates the notebooks: run `make notebooks` after a change of NAME.py or of the repository URL.

    NAME.py      source: cells in jupytext's percent format
    NAME.ipynb   generated notebook for Colab and Jupyter, without outputs

The badge and the first code cell are generated from `[project.urls] Repository` in pyproject.toml.
While that address is a placeholder, a sentence replaces the badge.
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
NO_BADGE = "To open this notebook in Jupyter or Colab, see `docs/installation.md`."
SETUP = """\
# In Colab this clones the code; elsewhere the code is already present.
import os
import subprocess

REPOSITORY = "{url}"
if os.path.exists("../experiment"):  # opened in the folder notebooks
    os.chdir("..")
elif not os.path.exists("experiment"):
    if not os.path.exists("ropewalk"):
        subprocess.run(["git", "clone", "-q", "--depth", "1", REPOSITORY, "ropewalk"], check=True)
    os.chdir("ropewalk")

%run notebooks/setup.py
%matplotlib inline"""


def repository() -> str:
    """Return the URL of the repository."""
    text = (HERE.parent / "pyproject.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)["project"]["urls"]["Repository"]


def generate(path: Path, url: str) -> dict[Path, str]:
    """Return the contents of a notebook's source `path` and of its notebook, by path."""
    notebook = jupytext.read(path)
    badge, setup = notebook.cells[0], notebook.cells[2]
    repository = url.partition("github.com/")[2]
    is_real = repository and "YOUR_ACCOUNT" not in repository
    badge.source = BADGE.format(repository=repository, name=path.stem) if is_real else NO_BADGE
    setup.source = SETUP.format(url=url)
    text = jupytext.writes(notebook, fmt="py:percent")
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
    notebook.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    return {path: text, path.with_suffix(".ipynb"): nbformat.writes(notebook) + "\n"}


def main() -> None:
    """Write the files that have changed."""
    for path in sorted(HERE.glob("[0-9]*.py")):
        for file, text in generate(path, repository()).items():
            if not file.exists() or file.read_text(encoding="utf-8") != text:
                file.write_text(text, encoding="utf-8")
                print("wrote", file)


if __name__ == "__main__":
    sys.exit(main())
