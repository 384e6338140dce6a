"""Writes a config as a file of the user's, with every field and its meaning."""

import dataclasses
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ropewalk.experiment.config import ExperimentConfig, stored_fields
from ropewalk.experiment.dotted import fields
from ropewalk.model import rotary
from ropewalk.model.rotary import Rotary
from ropewalk.utils.files import check_writable, write_atomically

_HEAD = '''"""{name}: `ropewalk train {path} --workdir runs/{name}`.

All fields of the config `{source}`, with their values. What you delete keeps the value that it has
there. A list of several configs in `configs` makes several names: {path}:NAME.
"""

from ropewalk.configs import find_config
from ropewalk.configs.changes import change
from ropewalk.model.rotary import parse_pattern

configs = [
    change(
        find_config("{source}"),
'''


def write(config: ExperimentConfig, source: str, path: Path) -> None:
    """Write a file that defines `config`, named after the file.

    Args:
      config: the config; its fields are the file's.
      source: name of the config that it was made from, as `configs.find_config` takes it.
      path: a new file, FILE.py.

    Raises:
      ValueError: if the path does not end in .py, exists or cannot be written, or `source` is a
        file.
    """
    if path.suffix != ".py":
        raise ValueError(f"--write {path}: the name of a config file ends in .py")
    if path.exists():
        raise ValueError(f"--write {path}: it exists already; choose another name")
    if ".py" in source:
        raise ValueError(f"{source} is a config file already; copy it")
    named = dataclasses.replace(config, name=path.stem)
    about = {field.name: ": ".join((field.kind, field.meaning)) for field in fields(named)}
    head = _HEAD.format(name=path.stem, path=path, source=source)
    check_writable(path.parent, "choose another path")
    path.parent.mkdir(parents=True, exist_ok=True)
    fields_text = "\n".join(_lines(named, "", about, " " * 8))
    write_atomically(path, f"{head}{fields_text}\n    )\n]\n")


def _lines(value: Any, prefix: str, about: dict[str, str], indent: str) -> Iterator[str]:
    """Yield the fields of a part of a config, as arguments of a call."""
    for field in stored_fields(type(value)):
        name, part = f"{prefix}{field.name}", getattr(value, field.name)
        if dataclasses.is_dataclass(part) and not isinstance(part, Rotary):
            yield f"{indent}{field.name}=dict("
            yield from _lines(part, f"{name}.", about, indent + " " * 4)
            yield f"{indent}),"
            continue
        comment = f"{indent}# "
        yield from textwrap.wrap(about[name], 98, initial_indent=comment, subsequent_indent=comment)
        is_rotary = name.endswith("rotary")
        text = f"parse_pattern({rotary.label(part)!r})" if is_rotary else repr(part)
        yield f"{indent}{field.name}={text},"
