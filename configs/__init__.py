"""Experiments, one file each; a file defines `configs`, a list of configs with unique names.

A config is Python: an ablation is a `dataclasses.replace`, so the difference is the experiment.
This module finds configs by walking the folder, and parses the command line that names one.
"""

import argparse
import importlib
import pkgutil

from ropewalk.experiment import dotted, overrides
from ropewalk.experiment.config import ExperimentConfig
from ropewalk.utils.command_line import Parser
from ropewalk.utils.messages import nearest


def argument_parser(program: str, description: str | None, *more: str) -> Parser:
    """Make the parser of `CONFIG --workdir DIR [overrides]`; its help lists configs and `more`."""

    class ConfigParser(Parser):
        def format_help(self) -> str:
            lines = "".join(f"  {c.name:<30} {c.question}\n" for c in load_configs().values())
            more_help = f"configs:\n{lines}", f"{overrides.OVERRIDES_HELP}\n", *more
            return "\n".join([super().format_help(), *more_help])

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
    add("config", metavar="CONFIG", help="a config's name, from the list below")
    add("--workdir", metavar="DIR", required=True, help="folder of the results")
    text = "changes to the config"
    add("overrides", nargs="*", type=overrides.typed, metavar="dotted.field=value", help=text)
    return parser


class _ShowFields(argparse.Action):
    """Print the fields and exit, as `--help` does."""

    def __call__(self, parser, namespace, values, option_string=None):
        try:
            print(dotted.listed(find_config(str(values))), end="")
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


def find_config(name: str) -> ExperimentConfig:
    """Return the config called `name`.

    Raises:
      ValueError: if there is none, with the nearest name.
    """
    configs = load_configs()
    if name not in configs:
        raise ValueError(f"unknown config {name!r}; {nearest(name, configs)}")
    return configs[name]
