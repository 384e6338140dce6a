"""Plug-ins: one class per file of a folder; the file name is the plug-in's name."""

import importlib
import importlib.util
import inspect
import os
import pkgutil
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import TypeVar

T = TypeVar("T")


def classes_in(package: ModuleType, base: type[T]) -> dict[str, type[T]]:
    """Return the subclass of `base` that each module of `package` defines, by module name."""
    # A package's `__main__` is a command, which may import more than the package.
    names = {info.name for info in pkgutil.iter_modules(package.__path__)} - {"__main__", "base"}
    return {
        name: cls
        for name in sorted(names)
        for cls in _defined(importlib.import_module(f"{package.__name__}.{name}"), base)
    }


def _defined(module: ModuleType, base: type[T]) -> Iterable[type[T]]:
    """Yield the concrete subclasses that a module defines itself."""
    for value in vars(module).values():
        is_own = isinstance(value, type) and value.__module__ == module.__name__
        if is_own and issubclass(value, base) and not inspect.isabstract(value):
            yield value


# Real paths of the files outside the repository that this process may execute.
_allowed: set[str] = set()


def allow(path: str | Path) -> None:
    """Permit this process to execute one file of code outside the repository.

    Commands call it for `--own FILE` and for the files that expressions on the command line name
    (`utils.expressions.allow_files`); notebooks and tests call it themselves. Never pass it a
    path that came with a run: from its config, its result rows, or its directory's name.
    """
    _allowed.add(os.path.realpath(path))


def allowed() -> list[str]:
    """Return the real paths of all files that this process may execute, for its child processes."""
    return sorted(_allowed)


def run_file(path: Path) -> ModuleType:
    """Execute a user's file and return its module, whose name is the path of the file.

    Raises:
      ValueError: if the file is not `allowed`, is missing, or fails.
    """
    # The config or the result rows of a run may name a file, which must not be executed.
    if os.path.realpath(path) not in _allowed:
        raise ValueError(
            f"{path} is code that the command line does not name, so it is not executed; "
            f"if you trust that file, add --own {path}, or call "
            f"ropewalk.utils.plugins.allow({str(path)!r}) in Python"
        )
    if not path.is_file():
        raise ValueError(f"no file {path}")
    spec = importlib.util.spec_from_file_location(str(path), path)
    assert spec  # a path that ends in .py has one
    module = sys.modules[str(path)] = importlib.util.module_from_spec(spec)
    folder = os.path.dirname(os.path.abspath(path))
    sys.path.insert(0, folder)  # as for a script: `import utils` is the module beside it
    try:
        # The spec's loader would execute __pycache__/*.pyc, which is another file.
        exec(compile(path.read_bytes(), str(path), "exec"), vars(module))
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [f"line {frame.lineno}: " for frame in frames if frame.filename == str(path)]
        reason = f"{''.join(lines[-1:])}{type(error).__name__}: {error}"
        raise ValueError(f"{path} cannot be run: {reason}") from error
    finally:
        sys.path.remove(folder)
    return module


def class_in_file(path: Path, name: str, base: type[T]) -> type[T]:
    """Return the subclass `name` of `base` in a user's file, whose code is executed.

    Raises:
      ValueError: as `run_file`, or if the file has no such class.
    """
    classes = {cls.__name__: cls for cls in _defined(run_file(path), base)}
    if name not in classes:
        raise ValueError(f"{path} has no {base.__name__} {name!r}; it has {sorted(classes)}")
    return classes[name]


def name_of(cls: type) -> str:
    """Return the name of a class in expressions: its module's, or the path of a user's file."""
    module = cls.__module__
    return f"{module}:{cls.__name__}" if module.endswith(".py") else module.rpartition(".")[2]
