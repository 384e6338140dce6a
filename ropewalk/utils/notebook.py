"""Prepares a kernel to run a notebook: code, packages, and current folder.

The first cell of each notebook calls `setup`. It installs missing packages only, without their
dependencies: in Colab, a newer JAX would replace the installed one and lose its CUDA plug-in or
libtpu.
"""

import contextlib
import importlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Iterable
from pathlib import Path

from packaging.requirements import Requirement

UNPACKED = "ropewalk-code"  # where a zip beside a notebook is unpacked


def setup() -> None:
    """Unpack the zip that this module lies in, if any; install packages; enter the code's folder.

    The notebook's paths are relative to that folder. Raise ImportError, with what to do, if an
    installed package does not fit.
    """
    root = Path(__file__).resolve().parents[2]
    archive = next((path for path in (root, *root.parents) if path.is_file()), None)
    if archive:
        shutil.unpack_archive(archive, UNPACKED, "zip")
        root = Path(UNPACKED).resolve() / root.relative_to(archive)
        for name in [name for name in sys.modules if name.partition(".")[0] == "ropewalk"]:
            del sys.modules[name]
    if not (root / "pyproject.toml").exists():
        return  # pip installed the package, and its requirements
    os.chdir(root)
    # Relative entries would now mean other folders.
    sys.path[:] = [str(root), *filter(os.path.isabs, sys.path)]
    requirements = required(root)
    if absent := missing(requirements):
        print("installing", *absent)
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", *absent]
        subprocess.run(command, check=True)
    importlib.invalidate_caches()
    check(requirements)
    # rich also prints progress without ipywidgets, which only animate it.
    warnings.filterwarnings("ignore", 'install "ipywidgets"')
    if shell := getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)():
        shell.run_line_magic("matplotlib", "inline")  # shows figures that pyplot did not make


def required(root: Path) -> list[Requirement]:
    """Return the dependencies in `root`'s pyproject.toml that apply to this Python."""
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    lines = tomllib.loads(text)["project"]["dependencies"]
    return [r for r in map(Requirement, lines) if not r.marker or r.marker.evaluate({"extra": ""})]


def installed(requirement: Requirement) -> str | None:
    """Return the installed version; None if there is none."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(requirement.name)
    return None


def missing(requirements: Iterable[Requirement]) -> list[str]:
    """Return the missing packages, as arguments of pip."""
    return [f"{r.name}{r.specifier}" for r in requirements if not installed(r)]


def check(requirements: Iterable[Requirement]) -> None:
    """Raise ImportError, with what to do, if an installed version does not fit."""
    unfit = [
        f"{r.name} {version} (not {r.specifier})"
        for r in requirements
        if (version := installed(r)) and not r.specifier.contains(version, True)
    ]
    if unfit:
        raise ImportError(
            f"this runtime has {', '.join(unfit)}. In Colab: Runtime > Change runtime type > "
            "Runtime version: 2026.08, then Run all. Elsewhere: make setup, and the kernel of .venv"
        )
