"""Allowed imports. The tree is the first diagram of the code; this keeps it true."""

import ast
import functools
import importlib.metadata
import itertools
import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "ropewalk"
STANDARD = set(sys.stdlib_module_names)

# From the ground up. A folder imports those of lower floors only, so folders side by side know
# nothing of each other.
FLOORS = (
    {"utils"},
    {"model", "data"},
    {"experiment"},
    {"configs", "evals"},
    {"training", "interop"},
    {"theory"},
    {"reporting"},
    {"probes"},
    {"studies"},
    {"train", "sweep", "evaluate", "tpu"},
    {"public"},
    {"ropewalk", "__main__"},
)
# Packages that a folder imports besides the standard library. Those that are not in the lock are
# imported inside functions.
PACKAGES = {
    "__main__": "argcomplete",
    "utils": "rich numpy matplotlib etils fsspec packaging argcomplete",
    "model": "numpy jax flax tokamax",
    # grain's worker processes import it: no jax, so no accelerator. absl: flags of these workers.
    "data": "numpy grain tensorflow_datasets array_record sentencepiece tokenizers jinja2 "
    "zstandard rich absl apache_beam pyarrow transformers",
    "experiment": "numpy jax flax psutil orbax tensorstore rich tensorboardX wandb zstandard",
    "evals": "numpy jax flax scipy rich",
    "training": "numpy jax optax rich IPython",
    "interop": "numpy jax jinja2 ml_dtypes orbax rich safetensors sentencepiece tokenizers "
    "transformers torch gguf",
    "theory": "numpy scipy matplotlib mpmath rich",
    "reporting": "numpy matplotlib rich jinja2 markupsafe",
    "probes": "numpy jax scipy matplotlib rich jinja2",
    "studies": "numpy scipy jax matplotlib jinja2 markupsafe",
    "evaluate": "numpy rich",
    "tpu": "jax numpy rich torch transformers",
}
# What a module must not bring in, through whatever it imports, where its floor allows that; not for
# those named second.
UNREACHED = {
    "model.rotary": ("jax", ""),
    "evaluate": ("training configs", ""),
    "interop": ("training configs", ""),
    "training": ("configs", "training.command"),
    # Audits read a config.json as the import does, and `show` reads configs.
    "theory": ("jax", "theory.__main__ theory.audit theory.show"),
}


def sources() -> dict[str, Path]:
    """Every module of the package by its dotted name below `ropewalk`."""
    paths = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        paths[name or "ropewalk"] = path
    return paths


SOURCES = sources()
TOP = {name.partition(".")[0] for name in SOURCES}


@functools.cache
def imports(name: str) -> frozenset[str]:
    """Dotted names that a module imports, anywhere in it; ours as far as they are modules."""
    names = set()
    for node in ast.walk(ast.parse(SOURCES[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {_without_package(alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: relative import"
            for alias in node.names:
                member = _without_package(f"{node.module}.{alias.name}")
                names.add(member if member in SOURCES else _without_package(str(node.module)))
    return frozenset(names)


def _without_package(name: str) -> str:
    """The path of a module below the package; no module of ours is imported without `ropewalk`.

    Otherwise it would be a second module, whose classes are not those of the first.
    """
    assert name.partition(".")[0] not in TOP - {"ropewalk", "__main__"}, (
        f"import {name} as ropewalk.{name}"
    )
    below = name.removeprefix("ropewalk.")
    return below if below.partition(".")[0] in TOP else name


def is_within(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


@pytest.mark.parametrize("top", sorted(TOP))
def test_a_folder_imports_lower_folders_and_its_packages(top):
    floors = {folder: floor for floor, folders in enumerate(FLOORS) for folder in folders}
    for name in (name for name in SOURCES if is_within(name, top)):
        for imported in {other.partition(".")[0] for other in imports(name)} - STANDARD - {top}:
            lower = imported in floors and floors[imported] < floors[top]
            assert lower or imported in PACKAGES.get(top, "").split(), f"{name} imports {imported}"


@functools.cache
def reachable(name: str) -> set[str]:
    """All modules that importing `name` brings in, itself included; packages run their __init__."""
    reached, waiting = set(), [name]
    while waiting:
        module = waiting.pop()
        if module in reached:
            continue
        reached.add(module)
        if module in SOURCES:
            waiting += imports(module)
        if "." in module:
            waiting.append(module.rpartition(".")[0])
    return reached


@pytest.mark.parametrize("prefix", UNREACHED)
def test_what_a_module_must_not_bring_in(prefix):
    targets, exceptions = (text.split() for text in UNREACHED[prefix])
    for name in (n for n in SOURCES if is_within(n, prefix) and n not in exceptions):
        reached = {r for r in reachable(name) for target in targets if is_within(r, target)}
        assert not reached, f"{name} reaches {sorted(reached)}"


def test_the_walk_finds_what_a_command_brings_in():
    """One that found nothing would pass everything."""
    assert {"jax", "model.rotary.base", "data.packing", "optax"} <= reachable("train")


def test_every_imported_package_is_declared(monkeypatch):
    """Another package may bring it today, in a version that suits only that one."""
    for path in ROOT.glob("notebooks/*.py"):
        monkeypatch.setitem(SOURCES, path.stem, path)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    lines = itertools.chain(project["dependencies"], *extras)
    declared = {re.split(r"[^\w-]", line)[0].lower() for line in lines}
    tops = {imported.partition(".")[0] for name in SOURCES for imported in imports(name)}
    owners = importlib.metadata.packages_distributions()
    for top in tops - STANDARD - TOP:
        packages = {name.lower().replace("_", "-") for name in owners.get(top, [top])}
        assert packages & declared, f"{top} is imported; add one of {packages} to pyproject.toml"
