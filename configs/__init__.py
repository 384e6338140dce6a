"""Experiments, one file each; a file defines `configs`, a list of configs with unique names.

A config is Python: an ablation is a `dataclasses.replace`, so the difference is the experiment.
This module finds configs by walking the folder, and parses the command line that names one.
"""

import argparse
import importlib
import pkgutil

from experiment import dotted, overrides
from experiment.config import ExperimentConfig
from utils.command_line import Parser
from utils.messages import nearest


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


<<<<<<< HEAD
=======
def training_parser(program: str, description: str | None, *more: str) -> Parser:
    """Make the parser of train.py and sweep.py: `argument_parser` with checks and processes."""
    parser = argument_parser(program, description, *more)
    group = parser.add_argument_group("checking")
    group.add_argument(
        "--check",
        action="store_true",
        help="check fields, run directory, start_from, data.path and mesh; list what was checked; "
        "train nothing",
    )
    group.add_argument(
        "--devices",
        type=_device_count,
        metavar="N",
        help="with --check: how many the machine has that will train (default: this machine's)",
    )
    add_process_flags(parser)
    return parser


def add_process_flags(parser: Parser) -> None:
    """Add the flags of `experiment.distributed.initialize` to a parser."""
    group = parser.add_argument_group(
        "several processes",
        "detected on TPU slices (also of GKE), under SLURM and Open MPI; "
        "elsewhere start\nthe same command N times, each with",
    )
    group.add_argument(
        "--coordinator", metavar="HOST:PORT", help="address of process 0, with a free port"
    )
    group.add_argument("--num-processes", type=int, metavar="N", help="number of processes")
    group.add_argument("--process-id", type=int, metavar="I", help="number of this process, from 0")


def _device_count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of devices, like 8")
    return int(text)


>>>>>>> 67a66de (evaluate.py shares documents among all devices of a host, and among processes)
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
    for info in pkgutil.walk_packages(__path__, "configs."):
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
