"""Configuration of the documentation site (Sphinx): `make docs` builds it in build/docs.

The pages are the Markdown files as they are on GitHub. The navigation, and the reference of the
functions that docs/functions.md lists, are added while they are read.
"""

import re
import shutil

from ropewalk import __version__

project, version, copyright = "ropewalk", __version__, "the authors of ropewalk"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "README"
include_patterns = ["*.md", "docs/*.md"]
exclude_patterns = [".*", "build", "ropewalk", "runs", "tests"]  # not searched
html_theme, html_title = "furo", "ropewalk"
html_copy_source = False
myst_heading_anchors = 3
default_role = "code"  # of single backticks in docstrings
autodoc_typehints_format = "short"

NAVIGATION = {
    "Start": "docs/installation docs/training docs/own_text docs/rotary docs/evaluation",
    "Results": "docs/language_model docs/recall docs/two_axes docs/inside docs/published",
    "Theory": "docs/theory docs/positions docs/audit docs/papers docs/glossary",
    "Machines": "docs/gpu docs/scaling docs/performance docs/reliability",
    "Tools": "docs/viewer docs/generation docs/interop docs/functions",
    "Project": "CONTRIBUTING SECURITY CHANGELOG",
}


def add_generated(app, name: str, source: list[str]) -> None:
    """Add the navigation to the first page, and docstrings to the page of functions."""
    if name == "README":
        for caption, pages in NAVIGATION.items():
            listed = "\n".join(f"/{page}" for page in pages.split())
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{listed}\n```\n"
    if name == "docs/functions":
        functions = re.findall(r"^\| `(ropewalk|run)\.([\w.]+)\(", source[0], re.M)
        lines = [
            f".. autofunction:: ropewalk.{name}"
            if owner == "ropewalk"
            else f".. automethod:: ropewalk.experiment.loaded.LoadedRun.{name}"
            for owner, name in functions
        ]
        source[0] += "\n## Reference\n\n```{eval-rst}\n" + "\n\n".join(lines) + "\n```\n"


def copy_first_page(app, error: Exception | None) -> None:
    """Copy the first page to the name that servers look for."""
    if not error:
        shutil.copy(app.outdir / "README.html", app.outdir / "index.html")


def setup(app) -> None:
    """Register the functions above."""
    app.connect("source-read", add_generated)
    app.connect("build-finished", copy_first_page)
