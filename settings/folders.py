"""What a folder holds, found by walking it: one class a file, called as the file is."""

import importlib
import importlib.util
import inspect
import pkgutil
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import TypeVar

T = TypeVar("T")


def classes_in(package: ModuleType, base: type[T]) -> dict[str, type[T]]:
    """The subclass of `base` that each module of `package` defines, by the module's name."""
    # A package's `__main__` is a command: it may stand on what the package does not know.
    names = {info.name for info in pkgutil.iter_modules(package.__path__)} - {"__main__"}
    return {
        name: own
        for name in sorted(names)
        for own in _defined(importlib.import_module(f"{package.__name__}.{name}"), base)
    }


def _defined(module: ModuleType, base: type[T]) -> Iterable[type[T]]:
    """A module's own whole subclasses, not those it imports or leaves abstract to build on."""
    for value in vars(module).values():
        own = isinstance(value, type) and value.__module__ == module.__name__
        if own and issubclass(value, base) and not inspect.isabstract(value) and value is not base:
            yield value


# Files of code that a program may run besides those that its command line names.
_allowed: set[str] = set()


def allow(path: str | Path) -> None:
    """Lets a file of one's own be run: for notebooks and tests, which have no command line."""
    _allowed.add(str(path))


def class_in_file(path: Path, name: str, base: type[T]) -> type[T]:
    """The subclass `name` of `base` in a file of the user's own: reading it runs its code.

    Its module is called as the file is, path and all, so that `name_of` can write it again.

    Raises:
      ValueError: if nobody asked for it, there is no such file, it fails, or it has no such class.
    """
    # What came with a run (its config, its result rows) may name a file, and must not run it.
    if str(path) not in _allowed and not any(str(path) in given for given in sys.argv[1:]):
        raise ValueError(
            f"{path} is code that nobody asked for here; name it on the command line "
            f"(report.py: --own {path}) to run it"
        )
    if not path.is_file():
        raise ValueError(f"no file {path}")
    spec = importlib.util.spec_from_file_location(str(path), path)
    assert spec and spec.loader  # a path that ends in .py has both
    module = sys.modules[str(path)] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ValueError(f"{path} cannot be run: {error!r}") from error
    found = {own.__name__: own for own in _defined(module, base)}
    if name not in found:
        raise ValueError(f"{path} has no {base.__name__} {name!r}; it has {sorted(found)}")
    return found[name]


def name_of(cls: type) -> str:
    """How expressions call a class: its file's name, or the path of a user's own file."""
    module = cls.__module__
    return f"{module}:{cls.__name__}" if module.endswith(".py") else module.rpartition(".")[2]
