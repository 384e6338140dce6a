"""Installs what is missing here and says what to do where versions do not fit; no more than that.

Run by the first cell of each notebook. Only what is missing, and without what it depends on: in
Colab a newer JAX over the one that is there loses its CUDA plug-in or libtpu.
"""

import importlib
import importlib.metadata
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

from packaging.requirements import Requirement


def needed() -> list[Requirement]:
    """What pyproject.toml asks for under this Python."""
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    found = map(Requirement, tomllib.loads(text)["project"]["dependencies"])
    return [each for each in found if each.marker is None or each.marker.evaluate()]


def installed(requirements: Iterable[Requirement]) -> dict[str, str]:
    """The versions of those that are here."""
    found = {}
    for each in requirements:
        try:
            found[each.name] = importlib.metadata.version(each.name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def missing(requirements: Iterable[Requirement], versions: Mapping[str, str]) -> list[str]:
    """What is to be installed, as pip takes it."""
    return [f"{each.name}{each.specifier}" for each in requirements if each.name not in versions]


def check(requirements: Iterable[Requirement], versions: Mapping[str, str]) -> None:
    """Raises ImportError, with what to do, if a version does not fit."""
    unfit = [
        f"{each.name} {versions[each.name]} (not {each.specifier})"
        for each in requirements
        if each.name in versions and not each.specifier.contains(versions[each.name], True)
    ]
    if unfit:
        raise ImportError(
            f"this runtime has {', '.join(unfit)}. In Colab: Runtime > Change runtime type > "
            "Runtime version: 2026.08, then Run all. Elsewhere: make setup, and the kernel of .venv"
        )


if __name__ == "__main__":
    wanted = needed()
    if absent := missing(wanted, installed(wanted)):
        print("installing", *absent)
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", *absent]
        subprocess.run(command, check=True)
        importlib.invalidate_caches()
    check(wanted, installed(wanted))
