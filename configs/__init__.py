"""Experiments, one file each; a file defines `configs`, a list of configs with unique names.

A config is Python: an ablation is a `dataclasses.replace`, so the difference is the experiment.
This module finds configs by walking the folder, and parses the command line that names one. A file
of the same form that a command line names is executed and read in the same way.
"""

import argparse
import importlib
import pkgutil
import re
from pathlib import Path
from typing import Any

from ropewalk.configs import template
from ropewalk.experiment import dotted, overrides
from ropewalk.experiment.config import ExperimentConfig
from ropewalk.utils.command_line import Parser
from ropewalk.utils.messages import nearest, quoted
from ropewalk.utils.plugins import allow, run_file


def argument_parser(program: str, description: str | None, *more: str) -> Parser:
    """Make the parser of `CONFIG --workdir DIR [overrides]`; its help lists configs and `more`."""

    class ConfigParser(Parser):
        def format_help(self) -> str:
            lines = "".join(f"  {c.name:<30} {c.question}\n" for c in load_configs().values())
            more_help = f"configs:\n{lines}", f"{overrides.OVERRIDES_HELP}\n", *more
            return "\n".join([super().format_help(), *more_help])

        def parse_intermixed_args(self, args=None, namespace=None) -> Any:
            arguments = super().parse_intermixed_args(args, namespace)
            if arguments.write:
                try:
                    template.write(_overridden(arguments), arguments.config, arguments.write)
                except (OSError, ValueError) as error:
                    self.refuse(error)
                self.exit()
            if arguments.workdir is None:
                self.error("the following arguments are required: --workdir")
            return arguments

    parser = ConfigParser(
        prog=program, description=description, formatter_class=argparse.RawTextHelpFormatter
    )
    add = parser.add_argument
    add(
        "--help-fields",
        nargs="?",
        const="small",
        metavar="CONFIG",
        action=_ShowFields,
        help="list every field with its value in CONFIG (small) and the allowed values",
    )
    add(
        "--write",
        metavar="FILE.py",
        type=Path,
        help="write CONFIG with its changes as a config file of yours, with all fields explained",
    )
    text = "a config's name, from the list below, or a file of yours: FILE.py or FILE.py:NAME"
    add("config", metavar="CONFIG", type=config_argument, help=text)
    add("--workdir", metavar="DIR", help="folder of the results; required")
    text = "changes to the config"
    add("overrides", nargs="*", type=overrides.typed, metavar="dotted.field=value", help=text)
    return parser


class _ShowFields(argparse.Action):
    """Print the fields and exit, as `--help` does."""

    def __call__(self, parser, namespace, values, option_string=None):
        try:
            print(dotted.listed(find_config(config_argument(str(values)))), end="")
        except ValueError as error:
            parser.error(str(error))
        parser.exit()


def load_configs() -> dict[str, ExperimentConfig]:
    """Load every config by name.

    Raises:
      ValueError: if two files define a config of one name.
    """
    configs: dict[str, ExperimentConfig] = {}
    for info in pkgutil.walk_packages(__path__, f"{__name__}."):
        for config in getattr(importlib.import_module(info.name), "configs", ()):
            if config.name in configs:
                raise ValueError(f"{info.name}: a config named {config.name} exists already")
            configs[config.name] = config
    return configs


_FILE = re.compile(r"(?P<path>.+\.py)(:(?P<name>[^:]+))?")


def config_argument(text: str) -> str:
    """Return the argument CONFIG of a command line, whose file this process may then execute."""
    if match := _FILE.fullmatch(text):
        allow(match["path"])
    return text


def find_config(name: str) -> ExperimentConfig:
    """Return the config called `name`, or that of a user's file: FILE.py or FILE.py:NAME.

    Raises:
      ValueError: if there is none, with the nearest name; if FILE.py has several and NAME is
        missing; if the file is not allowed (`utils.plugins.allow`) or fails.
    """
    if match := _FILE.fullmatch(name):
        return _find_in_file(Path(match["path"]), match["name"])
    configs = load_configs()
    if name not in configs:
        raise ValueError(f"unknown config {name!r}; {nearest(name, configs)}")
    return configs[name]


def _find_in_file(path: Path, name: str | None) -> ExperimentConfig:
    listed = getattr(run_file(path), "configs", None)
    if not isinstance(listed, list) or not listed:
        raise ValueError(f"{path} defines no list of configs: configs = [...]")
    for config in listed:
        if not isinstance(config, ExperimentConfig):
            raise ValueError(
                f"{path}: configs has {quoted(config)}, which is no ExperimentConfig of "
                "ropewalk.experiment.config"
            )
    configs = {config.name: config for config in listed}
    if name is None and len(listed) == 1:
        return listed[0]
    if name not in configs:
        names = ", ".join(f"{path}:{other}" for other in configs)
        raise ValueError(f"{path} has {len(listed)} configs; write one of {names}")
    return configs[name]


def _overridden(arguments: argparse.Namespace) -> ExperimentConfig:
    return dotted.apply(find_config(arguments.config), arguments.overrides)
