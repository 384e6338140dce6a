"""Experiments, one file each; a file defines `configs`, a list of configs with unique names.

A config is Python: an ablation is a `dataclasses.replace`, so the difference is the experiment.
This module finds configs by walking the folder, and parses the command line that names one. A file
of the same form that a command line names is executed and read in the same way.
"""

import argparse
import importlib
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from ropewalk.configs import template
from ropewalk.experiment import dotted, overrides
from ropewalk.experiment import stages as stages_lib
from ropewalk.experiment.config import ExperimentConfig
from ropewalk.utils.command_line import Parser, print_text
from ropewalk.utils.messages import nearest
from ropewalk.utils.plugins import allow, run_file

Cost = Callable[[Sequence[ExperimentConfig]], str]


def argument_parser(
    description: str | None, *more: str, describe_cost: Cost = lambda runs: ""
) -> Parser:
    """Make the parser of `CONFIG --workdir DIR [overrides]`; its help lists configs and `more`.

    That of a config has a line of `describe_cost`, which gets the configs of its runs.
    """

    class ConfigParser(Parser):
        def format_help(self) -> str:
            lines = "".join(f"  {c.name:<30} {c.question}\n" for c in load_configs().values())
            more_help = (
                f"configs (CONFIG --help explains one):\n{lines}",
                f"{overrides.OVERRIDES_HELP}\n",
                *more,
            )
            return "\n".join([super().format_help(), *more_help])

        def parse_intermixed_args(self, args=None, namespace=None) -> Any:
            words = sys.argv[1:] if args is None else args
            if words[1:] and words[1] in ("-h", "--help") and not words[0].startswith("-"):
                with self.refusing(ValueError):
                    print_text(explain(config_argument(words[0]), describe_cost))
                self.exit()
            arguments = super().parse_intermixed_args(args, namespace)
            for line in overrides.describe_replaced(arguments.overrides):
                print(f"note: {line}", file=sys.stderr)
            if arguments.write:
                with self.refusing(OSError, ValueError):
                    config = dotted.apply(find_config(arguments.config), arguments.overrides)
                    template.write(config, arguments.config, arguments.write)
                self.exit()
            if arguments.workdir is None:
                self.error("the following arguments are required: --workdir")
            return arguments

    parser = ConfigParser(description=description)
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
    metavar = "dotted.field=value"
    add("overrides", nargs="*", default=[], type=overrides.typed, metavar=metavar, help=text)
    return parser


class _ShowFields(argparse.Action):
    """Print the fields and exit, as `--help` does."""

    def __call__(self, parser: Any, namespace, values, option_string=None):
        with parser.refusing(ValueError):
            print(dotted.listed(find_config(config_argument(str(values)))), end="")
        parser.exit()


def load_configs() -> dict[str, ExperimentConfig]:
    """Load every config by name.

    Raises:
      ValueError: if two files define a config of one name.
    """
    configs: dict[str, ExperimentConfig] = {}
    for module in _modules():
        for config in getattr(module, "configs", ()):
            if config.name in configs:
                raise ValueError(f"{module.__name__}: there are two configs named {config.name}")
            configs[config.name] = config
    return configs


def _modules() -> Iterator[ModuleType]:
    for info in pkgutil.walk_packages(__path__, f"{__name__}."):
        yield importlib.import_module(info.name)


def explain(name: str, describe_cost: Cost) -> str:
    """Return the question, members, evaluation and cost of a config, and its file's docstring.

    Raises:
      ValueError: as for `find_config`.
    """
    config = find_config(name)
    if match := _FILE.fullmatch(name):
        doc = sys.modules[str(Path(match["path"]))].__doc__  # `find_config` has executed it
    else:
        doc = next(m.__doc__ for m in _modules() if config in getattr(m, "configs", ()))
    stages = dict.fromkeys(
        stage.config.evals.describe(stage.config.data.context_length)
        for stage in stages_lib.split(config)
    )
    members = overrides.make_members(config, []) if config.members else []
    runs = [member.config for member in members] or [config]
    lines = (f"member: {' '.join(member)}" for member in config.members)
    return "\n".join(
        [f"{config.name}: {config.question}", *lines, *stages, describe_cost(runs), "", doc or ""]
    )


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
        known = [*configs, f"{name}.py"] if Path(f"{name}.py").is_file() else configs
        raise ValueError(f"unknown config {name!r}; {nearest(name, known)}")
    return configs[name]


def _find_in_file(path: Path, name: str | None) -> ExperimentConfig:
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
