"""Typed dotted overrides, `model.rotary.base=500`, and configs found by name."""

import argparse
import ast
import dataclasses
import hashlib
import importlib
import itertools
import pkgutil
import re
import types
import typing
from collections.abc import Sequence
from typing import Any

from experiment.config import ExperimentConfig
from model import rotary as rotary_lib
from model.rotary import Rotary, nearest, split_commas

OVERRIDES_HELP = """\
overrides: any field of the config, by its dotted path
  train.num_steps=200                      a number (1e4 and 10_000 are numbers too)
  model.rotary.base=500                    a field of a nested object
  "model.rotary=yarn(base=1e4, factor=8, original_context_length=512)"
                                           a whole schedule, as an expression
  "model.rotary=[rope(base=1e4),nope]"     a pattern, repeated over the layers
  model.window=32  data.tokenizer=none     an optional value; none leaves it out
  evals.tasks=[kv,lines]                   a list
"""


def argument_parser(
    program: str, description: str | None, more: str = ""
) -> argparse.ArgumentParser:
    """The command line `CONFIG --workdir DIR [overrides]`, with help that lists the configs."""

    class Parser(argparse.ArgumentParser):
        def format_help(self) -> str:
            listed = "".join(
                f"  {config.name:<12} {config.question}\n" for config in load_configs().values()
            )
            return f"{super().format_help()}\nconfigs:\n{listed}\n{OVERRIDES_HELP}{more}"

    parser = Parser(
        prog=program, description=description, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("config", metavar="CONFIG", help="a config's name, from the list below")
    parser.add_argument("--workdir", metavar="DIR", required=True, help="where results go")
    parser.add_argument(
        "overrides", nargs="*", metavar="dotted.field=value", help="changes to the config"
    )
    return parser


def load_configs() -> dict[str, ExperimentConfig]:
    """Every config by name, found by walking `configs/`.

    Raises:
      ValueError: if two files define a config of one name.
    """
    import configs  # the package of presets; imported late, nothing here depends on its content

    found: dict[str, ExperimentConfig] = {}
    for module_info in pkgutil.walk_packages(configs.__path__, "configs."):
        module = importlib.import_module(module_info.name)
        for config in getattr(module, "configs", ()):
            if config.name in found:
                raise ValueError(f"{module_info.name}: a config named {config.name} exists already")
            found[config.name] = config
    return found


def find_config(name: str) -> ExperimentConfig:
    """The preset called `name`.

    Raises:
      ValueError: if there is none, with the nearest name.
    """
    configs = load_configs()
    if name not in configs:
        raise ValueError(f"unknown config {name!r}; {nearest(name, configs)}")
    return configs[name]


def apply(config: ExperimentConfig, overrides: Sequence[str]) -> ExperimentConfig:
    """`config` with every `dotted.field=value` of `overrides` applied, in order.

    Values are checked against each other once, at the end of each object's changes.

    Raises:
      ValueError: naming the override, what is wrong, and the nearest valid field.
    """
    tree: dict[str, Any] = {}
    for override in overrides:
        path, equals, text = override.partition("=")
        if not equals or not path:
            raise ValueError(f"override {override!r} is not of the form dotted.field=value")
        node = tree
        *parents, last = path.split(".")
        for parent in parents:
            child = node.setdefault(parent, {})
            # A whole object given first (model.rotary=..) may be refined after (model.rotary.base).
            node = child if isinstance(child, dict) else node.setdefault(parent + ".", {})
        node[last] = text
    return _replace(config, tree, "")


def _replace(value: Any, changes: dict[str, Any], prefix: str) -> Any:
    hints = typing.get_type_hints(type(value))
    fields = {field.name for field in dataclasses.fields(value)}
    new = {}
    for key, change in changes.items():
        name = key.rstrip(".")
        where = prefix + name
        if name not in fields:
            raise ValueError(f"unknown field {where!r}; {nearest(name, fields)}")
        if isinstance(change, dict):
            current = new.get(name, getattr(value, name))
            if not dataclasses.is_dataclass(current):
                raise ValueError(f"{where} has no fields of its own; write {where}=VALUE")
            new[name] = _replace(current, change, where + ".")
        else:
            new[name] = _parse(change, hints[name], where)
    try:
        return dataclasses.replace(value, **new)
    except ValueError as error:
        raise ValueError(f"{prefix.rstrip('.') or 'config'}: {error}") from error


def _parse(text: str, hint: Any, where: str) -> Any:
    """`text` as a value of the type `hint`."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if text.lower() == "none" and type(None) in arguments:
            return None
        # `[a,b]` is the union's tuple, where it has one; anything else its plain type.
        listed = text.startswith("[")
        kinds = [kind for kind in arguments if kind is not type(None)]
        fitting = [kind for kind in kinds if (typing.get_origin(kind) is tuple) == listed]
        return _parse(text, (fitting or kinds)[0], where)
    if origin is typing.Literal:
        if text not in arguments:
            raise ValueError(f"{where}={text}: {nearest(text, arguments)}")
        return text
    if origin is tuple:
        items = text[1:-1] if text[:1] + text[-1:] in ("[]", "()") else text
        return tuple(_parse(item.strip(), arguments[0], where) for item in split_commas(items))
    if isinstance(hint, type) and issubclass(hint, Rotary):
        try:
            return rotary_lib.parse(text)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
    if hint is str:
        return text
    if hint is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(f"{where}={text} must be true or false")
        return text.lower() == "true"
    if hint in (int, float):
        return _number(text, hint, where)
    raise ValueError(f"{where} is an object; set one of its fields: {where}.FIELD=VALUE")


def _number(text: str, hint: type, where: str) -> int | float:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        value = None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{where}={text} must be a number")
    if hint is int and value != int(value):
        raise ValueError(f"{where}={text} must be a whole number")
    return hint(value)


def member_name(varying: Sequence[str]) -> str:
    """A member's directory: what varies, `base=10,seed=1`; safe as a file name.

    A name too long for a file system ends in a hash of all of it.
    """
    parts = []
    for override in varying:
        path, _, value = override.partition("=")
        if value.startswith("["):  # checkpoints cannot lie where a path has brackets
            value = "+".join(split_commas(value.strip("[]")))
        parts.append(f"{path.rpartition('.')[2]}={value}")
    name = re.sub(r"[/*?\[\]]", "_", ",".join(parts)).replace(" ", "")
    if len(name) <= 120:
        return name
    return f"{name[:110]}~{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def grid(overrides: Sequence[str]) -> list[tuple[str, list[str]]]:
    """The members of a sweep: every combination of the comma-separated values.

    Returns:
      For each member its name, made of what varies, and its overrides.
    """
    choices = []
    for override in overrides:
        path, _, text = override.partition("=")
        choices.append([f"{path}={value.strip()}" for value in split_commas(text)])
    varies = [len(values) > 1 for values in choices]
    return [
        (member_name(list(itertools.compress(combination, varies))), list(combination))
        for combination in itertools.product(*choices)
    ]
