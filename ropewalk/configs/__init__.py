"""Experiments, one file each; a file defines `configs`, a list of configs with unique names.

A config is Python: an ablation is a `dataclasses.replace`, so the difference is the experiment.
This module finds configs by walking the folder, and parses the command line that names one. Users
have files of the same form, or TOML (`configs.files`).
"""

import argparse
import importlib
import os
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from ropewalk.configs import files
from ropewalk.experiment import dotted, overrides
from ropewalk.experiment import stages as stages_lib
from ropewalk.experiment.config import ExperimentConfig
from ropewalk.utils.command_line import Parser, print_text
from ropewalk.utils.messages import nearest
from ropewalk.utils.plugins import allow

Cost = Callable[[Sequence[ExperimentConfig]], str]

# Those that people start with; `--all` lists all.
FIRST = (
    *("demo", "tiny", "small", "own_text", "language_model", "base_30m", "base_125m", "paper_2b"),
    *("figure7_pretrain_cpu", "yarn_sliding_window_cpu"),
)


def argument_parser(
    description: str | None, *more: str, describe_cost: Cost = lambda runs: ""
) -> Parser:
    """Make the parser of `CONFIG --workdir DIR [overrides]`; its help lists configs and `more`.

    `--help` with a config has a line of `describe_cost`, which gets the configs of its runs.
    """

    class ConfigParser(Parser):
        def format_help(self) -> str:
            configs = load_configs()
            names = configs if "--all" in sys.argv else FIRST
            lines = "".join(f"  {name:<30} {configs[name].question}\n" for name in names)
            others = "" if names is configs else f"; --all lists all {len(configs)}"
            more_help = (
                f"configs (CONFIG --help explains one{others}):\n{lines}",
                f"{overrides.OVERRIDES_HELP}\n",
                *more,
            )
            return "\n".join([super().format_help(), *more_help])

        def complete(self) -> None:
            # argparse, but not `parse_intermixed_args`, ends the overrides at an option.
            if line := os.environ.get("COMP_LINE"):
                shorter = re.sub(r" --workdir[ =]\S+(?= )", "", line)
                point = int(os.environ["COMP_POINT"]) - len(line) + len(shorter)
                os.environ |= {"COMP_LINE": shorter, "COMP_POINT": str(point)}
            super().complete()

        def parse_intermixed_args(self, args=None, namespace=None) -> Any:
            self.complete()
            words = sys.argv[1:] if args is None else args
            if words[1:] and words[1] in ("-h", "--help") and not words[0].startswith("-"):
                with self.refusing(ValueError):
                    print_text(explain(allowed_config(words[0]), describe_cost))
                self.exit()
            arguments = super().parse_intermixed_args(args, namespace)
            for line in overrides.describe_replaced(arguments.overrides):
                print(f"note: {line}", file=sys.stderr)
            if arguments.write:
                with self.refusing(OSError, ValueError):
                    config = dotted.apply(find_config(arguments.config), arguments.overrides)
                    files.write(config, arguments.config, arguments.write)
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
        metavar="FILE.toml",
        type=Path,
        help="write CONFIG with its changes as a config file of yours, with all fields explained "
        "(FILE.py: in Python)",
    )
    add("--all", action="help", help="show this help message with all configs, and exit")
    text = "a config's name, from the list below, or a file of yours: FILE.toml, FILE.py[:NAME]"
    completed = add("config", metavar="CONFIG", type=allowed_config, help=text)
    completed.completer = lambda **_: [*load_configs(), *map(str, Path().glob("*.toml"))]  # pyright: ignore
    add("--workdir", metavar="DIR", help="folder of the results; required")
    text = "changes to the config"
    metavar = "dotted.field=value"
    completed = add(
        "overrides", nargs="*", default=[], type=overrides.typed, metavar=metavar, help=text
    )
    completed.completer = _field_names  # pyright: ignore
    return parser


def _field_names(parsed_args: argparse.Namespace, **_: object) -> list[str]:
    """Return what an override may begin with, for the completion of a shell."""
    return [f"{field.name}=" for field in dotted.fields(find_config(parsed_args.config))]


class _ShowFields(argparse.Action):
    """Print the fields and exit, as `--help` does."""

    def __call__(self, parser: Any, namespace, values, option_string=None):
        with parser.refusing(ValueError):
            print(dotted.listed(find_config(allowed_config(str(values)))), end="")
        parser.exit()


def load_configs() -> dict[str, ExperimentConfig]:
    """Load every config by its name, of which each has another one."""
    return {c.name: c for module in _modules() for c in getattr(module, "configs", ())}


def _modules() -> Iterator[ModuleType]:
    for info in pkgutil.walk_packages(__path__, f"{__name__}."):
        yield importlib.import_module(info.name)


def explain(name: str, describe_cost: Cost) -> str:
    """Return the question, members, evaluation and cost of a config, and its file's docstring.

    Raises:
      ValueError: as for `find_config`.
    """
    config = find_config(name)
    if match := _PYTHON.fullmatch(name):
        doc = sys.modules[str(Path(match["path"]))].__doc__  # `find_config` has executed it
    else:
        modules = (m for m in _modules() if config in getattr(m, "configs", ()))
        doc = next((module.__doc__ for module in modules), "")
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


_PYTHON = re.compile(r"(?P<path>.+\.py)(:(?P<name>[^:]+))?")


def allowed_config(text: str) -> str:
    """Return the argument CONFIG of a command line, whose file this process may then execute."""
    if match := _PYTHON.fullmatch(text):
        allow(match["path"])
    return text


def find_config(name: str) -> ExperimentConfig:
    """Return the config called `name`, or that of a user's file: FILE.toml, FILE.py, FILE.py:NAME.

    Raises:
      ValueError: if there is none, with the nearest name; as `files.read_toml` and `read_python`.
    """
    if match := _PYTHON.fullmatch(name):
        return files.read_python(Path(match["path"]), match["name"])
    configs = load_configs()
    if name.endswith(".toml"):
        return files.read_toml(Path(name), configs)
    if name not in configs:
        if suffix := Path(name).suffix:
            raise ValueError(
                f"{name}: a config file is TOML (or Python), not {suffix}; "
                f"`ropewalk train small --write {Path(name).with_suffix('.toml')}` writes one"
            )
        known = [
            *configs,
            *(f"{name}{x}" for x in (".toml", ".py") if Path(f"{name}{x}").is_file()),
        ]
        raise ValueError(f"unknown config {name!r}; {nearest(name, known)}")
    return configs[name]
