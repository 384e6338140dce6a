"""Installs missing packages and rejects versions that do not fit.

The first cell of each notebook runs it. It installs missing packages only, without their
dependencies: in Colab, a newer JAX would replace the installed one and lose its CUDA plug-in or
libtpu.
"""

import contextlib
import importlib
import importlib.metadata
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Iterable
from pathlib import Path

from packaging.requirements import Requirement


def required() -> list[Requirement]:
    """Return the dependencies for this Python, of pyproject.toml or a wheel's metadata."""
    file = Path(__file__).resolve().parents[2] / "pyproject.toml"
    if file.exists():
        lines = tomllib.loads(file.read_text(encoding="utf-8"))["project"]["dependencies"]
    else:
        lines = importlib.metadata.requires("ropewalk") or []
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


if __name__ == "__main__":
    requirements = required()
    if absent := missing(requirements):
        print("installing", *absent)
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", *absent]
        subprocess.run(command, check=True)
        importlib.invalidate_caches()
    check(requirements)
    # rich also prints progress without ipywidgets, which only animate it.
    warnings.filterwarnings("ignore", 'install "ipywidgets"')
