"""Config files of the user: FILE.toml, or FILE.py with a list `configs`.

A TOML file names a config, and the fields that differ from it, with the same names, values and
checks as overrides on a command line:

    config = "small"
    question = "Does a base of 500 suffice?"
    [model]
    rotary = "rope(base=500)"
    window = "none"
    [train]
    num_steps = 1000
"""

import dataclasses
import json
import textwrap
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ropewalk.experiment.config import ExperimentConfig, flatten, stored_fields
from ropewalk.experiment.dotted import apply, fields
from ropewalk.model import rotary
from ropewalk.model.rotary import Rotary
from ropewalk.utils.expressions import split_commas, unquote
from ropewalk.utils.files import check_writable, write_atomically
from ropewalk.utils.limits import read_bytes
from ropewalk.utils.messages import nearest, quoted
from ropewalk.utils.plugins import run_file

_ABOUT = """{name}: `ropewalk train {path} --workdir runs/{name}`.

All fields of the config `{source}`, with their values. What you delete keeps the value that it has
there."""

_PYTHON = '''"""{about} A list of several configs in `configs` makes several names: {path}:NAME.
"""

from ropewalk.configs import find_config
from ropewalk.configs.changes import change
from ropewalk.model.rotary import parse_pattern

configs = [
    change(
        find_config("{source}"),
{fields}
    )
]
'''


def read_toml(path: Path, configs: dict[str, ExperimentConfig]) -> ExperimentConfig:
    """Return the config of a TOML file, which changes one of `configs`.

    Raises:
      ValueError: if the file is missing or malformed, or a field or value is not allowed.
    """
    if not path.is_file():
        raise ValueError(f"no file {path}")
    try:
        tree = tomllib.loads(read_bytes(path).decode())
        name = tree.pop("config", None)
        if name is None:
            raise ValueError('name the config that this file changes: config = "small"')
        if str(name) not in configs:
            raise ValueError(f"unknown config {quoted(name)}; {nearest(str(name), configs)}")
        config, changes = configs[name], {"name": path.stem} | flatten(tree)
        return apply(config, [f"{name}={_override(x)}" for name, x in changes.items()])
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: {error}") from error


def _override(value: Any, *, is_item: bool = False) -> str:
    """Write a value of TOML as on a command line."""
    if isinstance(value, list):
        return f"[{','.join(_override(item, is_item=True) for item in value)}]"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    is_split = is_item and len(split_commas(text)) > 1
    return f'"{text}"' if is_split or unquote(text) == text[1:-1] else text


def read_python(path: Path, name: str | None) -> ExperimentConfig:
    """Return the config `name` of the list `configs` in a Python file; None: its only one.

    Raises:
      ValueError: if there is none, or the file fails or is not allowed (`utils.plugins.allow`).
    """
    listed = getattr(run_file(path), "configs", None)
    if not (isinstance(listed, list) and listed) or not all(
        isinstance(config, ExperimentConfig) for config in listed
    ):
        raise ValueError(
            f"{path} defines no list of configs: write configs = [...], with objects of "
            "ropewalk.experiment.config.ExperimentConfig"
        )
    configs = {config.name: config for config in listed}
    if len(configs) < len(listed):
        raise ValueError(f"{path} has two configs of one name; give each config another name")
    if name is None and len(listed) == 1:
        return listed[0]
    if name not in configs:
        raise ValueError(
            f"{path} has {len(listed)} configs; write :NAME after it, one of {', '.join(configs)}"
        )
    return configs[name]


def write(config: ExperimentConfig, source: str, path: Path) -> None:
    """Write a file that defines `config`, named after the file, with every field and its meaning.

    Args:
      config: the config; its fields are the file's.
      source: name of the config that it was made from, as `configs.find_config` takes it.
      path: a new file, FILE.py or FILE.toml.

    Raises:
      ValueError: if the path has another suffix, exists or cannot be written, or `source` is a
        file.
    """
    if path.suffix not in (".py", ".toml"):
        raise ValueError(f"--write {path}: the name of a config file ends in .toml or .py")
    if path.exists():
        raise ValueError(f"--write {path}: it exists already; choose another name")
    if ".py" in source or ".toml" in source:
        raise ValueError(f"{source} is a config file already; copy it")
    named = dataclasses.replace(config, name=path.stem)
    meanings = {field.name: ": ".join((field.kind, field.meaning)) for field in fields(named)}
    about = _ABOUT.format(name=path.stem, path=path, source=source)
    if path.suffix == ".py":
        lines = _lines(named, "", _python_value, meanings, " " * 8)
        text = _PYTHON.format(about=about, path=path, source=source, fields="\n".join(lines))
    else:
        head = [*textwrap.indent(about, "# ", lambda line: True).split("\n"), ""]
        lines = _lines(named, "", _toml_value, meanings)
        text = "\n".join([*head, f"config = {json.dumps(source)}", *lines, ""])
    check_writable(path.parent, "choose another path")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text)


def _lines(
    value: Any,
    prefix: str,
    written: Callable[[Any], str],
    meanings: dict[str, str],
    indent: str | None = None,
) -> Iterator[str]:
    """Yield the fields of a part of a config: arguments of a call, or without `indent` TOML."""
    is_toml, comment = indent is None, f"{indent or ''}# "
    parts = {field.name: getattr(value, field.name) for field in stored_fields(type(value))}
    tables = [name for name, part in parts.items() if _is_table(part)]
    for name in sorted(parts, key=tables.__contains__):  # in TOML, tables are last
        if name not in tables:
            yield from textwrap.wrap(
                meanings[prefix + name], 98, initial_indent=comment, subsequent_indent=comment
            )
            text = written(parts[name])
            yield f"{name} = {text}" if is_toml else f"{indent}{name}={text},"
        elif is_toml:
            yield f"\n[{prefix}{name}]"
            yield from _lines(parts[name], f"{prefix}{name}.", written, meanings)
        else:
            yield f"{indent}{name}=dict("
            yield from _lines(parts[name], f"{prefix}{name}.", written, meanings, f"{indent}    ")
            yield f"{indent}),"


def _is_table(part: Any) -> bool:
    return dataclasses.is_dataclass(part) and not isinstance(part, Rotary)


def _is_rotary(part: Any) -> bool:
    """Return whether a value is a variant, or a pattern of variants over layers and heads."""
    return isinstance(part, Rotary) or (isinstance(part, tuple) and any(map(_is_rotary, part)))


def _python_value(part: Any) -> str:
    return f"parse_pattern({rotary.label(part)!r})" if _is_rotary(part) else repr(part)


def _toml_value(part: Any) -> str:
    if isinstance(part, tuple) and not _is_rotary(part):
        return f"[{', '.join(map(_toml_value, part))}]"
    if isinstance(part, int | float):
        return repr(part).lower()
    text = rotary.label(part) if _is_rotary(part) else "none" if part is None else part
    return json.dumps(text, ensure_ascii=False)
