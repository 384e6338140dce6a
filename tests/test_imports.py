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
STANDARD = set(sys.stdlib_module_names)

# What a folder or script may import besides itself and the standard library, by longest prefix.
ALLOWED = {
    "utils": {"rich"},
    "utils.buckets": {"etils", "fsspec"},
    "utils.limits": {"numpy"},
    "utils.figures": {"numpy", "matplotlib"},
    "model.rotary": {"numpy"},
    "theory.show": {"model.rotary", "theory", "experiment", "configs"},
    "model": {"numpy", "jax", "flax"},
    "theory": {"numpy", "matplotlib", "rich", "model.rotary"},
    # A published config.json has one reader, that of the import.
    "theory.audit": {"numpy", "theory", "interop"},
    "theory.misreadings": {"numpy", "theory", "interop", "model.rotary"},
    "theory.__main__": {"numpy", "matplotlib", "rich", "theory", "model", "experiment"}
    | {"configs", "evals"},
    "theory.forecast": {"numpy", "jax", "theory", "model.rotary", "data", "evals", "experiment"}
    | {"training"},
    "theory.minimal_head": {"numpy", "jax", "optax"},
    # grain's worker processes import it: no jax, so no accelerator.
    "data": {"numpy", "grain", "tensorflow_datasets", "array_record", "sentencepiece"}
    | {
        "tokenizers",
        "google",  # protobuf
        "jinja2",
        "zstandard",
        "rich",
        "absl",
        "apache_beam",
    },  # absl: flags that grain's workers want parsed
    "experiment": {
        "numpy",
        "jax",
        "orbax",
        "tensorstore",
        "rich",
        "tensorboardX",
        "wandb",
        "zstandard",
    }
    | {"model", "data"},
    "evals": {"numpy", "jax", "scipy", "rich", "model", "data", "experiment"},
    "inference": {"numpy", "jax", "flax", "model", "data", "experiment"},
    "generate": {"inference", "experiment"},
    "probes": {"numpy", "jax", "scipy", "matplotlib", "rich", "jinja2", "model", "data"}
    | {"experiment", "evals", "theory", "reporting"},
    "configs": {"experiment", "model", "data"},
    # What is not in the lock stands inside functions, and is asked for by name where it is missing.
    "interop": {
        "numpy",
        "jax",
        "flax",
        "ml_dtypes",
        "orbax",
        "rich",
        "safetensors",
        "sentencepiece",
        "tokenizers",
    }
    | {"transformers", "torch", "lm_eval", "datasets", "gguf"}
    | {"model", "data", "experiment", "evals", "inference"},
    "reporting": {"numpy", "matplotlib", "rich", "jinja2", "markupsafe", "evals"}
    | {"theory", "experiment", "model", "data"},
    "studies": {"numpy", "scipy", "jax", "matplotlib", "jinja2", "markupsafe", "configs", "evals"}
    | {"training", "experiment", "theory", "reporting", "model", "data"},
    "training": {"numpy", "jax", "optax", "rich", "model", "data", "experiment", "evals"},
    "training.command": {"configs", "data", "evals", "experiment", "training"},
    "train": {"training"},
    "sweep": {"training"},
    "evaluate": {"numpy", "rich", "evals", "reporting", "model", "data", "experiment"},
    "report": {"reporting", "experiment"},
    "tpu": {"jax", "numpy", "rich", "training", "model", "data", "experiment", "configs"},
    "benchmarks": {"numpy", "jax", "rich", "torch", "transformers", "training"}
    | {"evals", "inference", "interop", "model", "data", "experiment", "configs"},
}


def sources() -> dict[str, Path]:
    """Every module of the repository but the tests, by dotted name."""
    # Folder by folder: a walk from the root would go through all of .venv and of runs.
    skipped = ("tests", "runs", "build", "notebooks")
    tops = [top for top in ROOT.iterdir() if top.name not in skipped and top.name[0] != "."]
    paths = {}
    for path in (*ROOT.glob("*.py"), *(path for top in tops for path in top.rglob("*.py"))):
        parts = path.relative_to(ROOT).with_suffix("").parts
        paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return paths


SOURCES = sources()
TOP = {name.partition(".")[0] for name in SOURCES}


@functools.cache
def imports(name: str) -> frozenset[str]:
    """Dotted names that a module imports, anywhere in it; ours as far as they are modules."""
    names = set()
    for node in ast.walk(ast.parse(SOURCES[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: relative import"
            for alias in node.names:
                member = f"{node.module}.{alias.name}"
                names.add(member if member in SOURCES else str(node.module))
    return frozenset(names)


def is_within(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


def rule(name: str) -> str:
    """The longest prefix of `name` that the table has."""
    matches = [prefix for prefix in ALLOWED if is_within(name, prefix)]
    assert matches, f"{name} has no line in the import table"
    return max(matches, key=len)


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_imports_follow_the_table(name):
    prefix = rule(name)
    for imported in imports(name):
        if imported.partition(".")[0] in STANDARD:
            continue
        # `data` may import `data`, but `model` is not its own `model.rotary`'s.
        inside = is_within(imported, prefix)
        allowed = any(is_within(imported, other) for other in ALLOWED[prefix])
        allowed |= is_within(imported, "utils")  # the ground floor
        allowed |= prefix == "model" and is_within(imported, "model.rotary")
        assert inside or allowed, f"{name} imports {imported}, which {prefix} may not"


# Private parts of libraries that the code reads or replaces, with the reason. At most two.
PRIVATE = {
    # The public kernel has no backward pass for rings; these are its three programs.
    "model.kernels.splash": {
        "splash_attention_kernel._splash_attention_forward",
        "splash_attention_kernel._splash_attention_bwd_dq",
        "splash_attention_kernel._splash_attention_bwd_dkv",
    },
    # The only place with the address that a process waits for under SLURM and on TPU slices.
    "experiment.distributed": {"jax._src.distributed.global_state"},
}
# Of the standard library, and documented: its hooks, and the end of a process without cleaning up.
_HOOKS = {"os._exit", "sys.excepthook", "sys.unraisablehook"}


def private_parts(name: str) -> set[str]:
    """Private names of libraries in a module, and attributes of libraries that it replaces."""
    tree = ast.parse(SOURCES[name].read_text(encoding="utf-8"))
    libraries, parts = set(), set()
    for node in ast.walk(tree):
        for alias in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
            path = f"{getattr(node, 'module', None) or ''}.{alias.name}".strip(".")
            if path.partition(".")[0] not in {*TOP, "__future__"}:
                libraries.add((alias.asname or alias.name).partition(".")[0])
                parts |= {path} if "._" in path else set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            path = ast.unparse(node)
            is_replaced = isinstance(node.ctx, ast.Store | ast.Del)
            is_private = re.match(r"_(?!_)", node.attr) is not None
            if path.partition(".")[0] in libraries and (is_replaced or is_private):
                parts.add(path)
    return parts - _HOOKS


def test_private_parts_of_libraries_are_listed():
    found = {name: parts for name in SOURCES if (parts := private_parts(name))}
    assert found == PRIVATE and len(PRIVATE) <= 2


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


def reaches(name: str, target: str) -> list[str]:
    return sorted(module for module in reachable(name) if is_within(module, target))


def test_every_imported_package_is_declared():
    """Another package may bring it today, in a version that suits only that one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    lines = itertools.chain(project["dependencies"], *extras)
    declared = {re.split(r"[^\w-]", line)[0].lower() for line in lines}
    tops = {imported.partition(".")[0] for name in SOURCES for imported in imports(name)}
    owners = importlib.metadata.packages_distributions()
    for top in tops - STANDARD - TOP:
        packages = {name.lower().replace("_", "-") for name in owners.get(top, [top])}
        assert packages & declared, f"{top} is imported; add one of {packages} to pyproject.toml"


def test_evaluation_reaches_neither_the_trainer_nor_the_configs():
    assert not reaches("evaluate", "training")
    assert not reaches("evaluate", "configs")
    for name in SOURCES:
        if name.startswith("evals"):
            assert not reaches(name, "training") + reaches(name, "configs")


@pytest.mark.parametrize("name", sorted(n for n in SOURCES if is_within(n, "data")))
def test_data_reaches_no_jax(name):
    for target in ("jax", "flax", "model", "tensorflow"):
        assert not reaches(name, target)


@pytest.mark.parametrize("name", sorted(n for n in SOURCES if is_within(n, "model.rotary")))
def test_schedules_and_theory_reach_no_jax(name):
    assert not reaches(name, "jax")


def test_theory_reaches_no_jax():
    """But for audits, which read a config.json as the import does, the minimal head, and forecasts
    of configs, which read tasks and estimates of `evals`."""
    for name in SOURCES:
        others = "theory.forecast", "theory.minimal_head", "theory.__main__"
        others += "theory.audit", "theory.misreadings"
        if is_within(name, "theory") and name not in others:
            assert not reaches(name, "jax"), name


def test_nothing_imports_a_command():
    commands = {path.stem for path in ROOT.glob("*.py")}
    importers = {name for name in SOURCES if imports(name) & commands}
    assert commands >= {"train", "sweep"} and not importers


def test_the_walk_sees_what_it_must():
    """The trainer does reach all of these: a walk that found nothing would pass everything."""
    for target in ("jax", "model.rotary.base", "data.packing", "experiment.config", "optax"):
        assert reaches("train", target)


# From the ground up; who stands side by side knows nothing of the other. Theory's modules import
# only `model.rotary` (above), its commands ask configs.
FLOORS = (
    {"utils"},
    {"model", "data"},
    {"experiment"},
    {"configs", "evals", "inference"},
    {"training", "interop"},
    {"theory"},
    {"reporting"},
    {"probes"},
    {"studies"},
    {"train", "sweep", "evaluate", "generate", "report", "tpu", "benchmarks"},
)


def test_imports_point_down():
    floor_of = {folder: floor for floor, folders in enumerate(FLOORS) for folder in folders}
    assert floor_of.keys() == TOP
    for name in SOURCES:
        top = name.partition(".")[0]
        for other in {imported.partition(".")[0] for imported in imports(name)} & TOP - {top}:
            assert floor_of[other] < floor_of[top], f"{name} imports {other}, which stands above it"
