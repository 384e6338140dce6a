"""One file per experiment, found by walking this folder; each defines `configs`, a list.

A config is Python: an ablation is a `dataclasses.replace`, so the difference is the experiment.
Here is what finds them, and the command line that names one. The cards of `studies/` are found too.
"""

import argparse
import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path

from experiment import fields, overrides
from experiment.config import ExperimentConfig
from settings.commands import Parser
from settings.messages import nearest


def argument_parser(program: str, description: str | None, *more: str) -> Parser:
    """The command line `CONFIG --workdir DIR [overrides]`; its help lists configs, and `more`."""

    class ConfigParser(Parser):
        def format_help(self) -> str:
            listed = "".join(f"  {c.name:<30} {c.question}\n" for c in load_configs().values())
            more_help = f"configs:\n{listed}", f"{overrides.OVERRIDES_HELP}\n", *more
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
        help="every field with its value in CONFIG (small), and what it may be",
    )
    add("config", metavar="CONFIG", help="a config's name, from the list below")
    add("--workdir", metavar="DIR", required=True, help="where results go")
    text = "changes to the config"
    add("overrides", nargs="*", type=overrides.typed, metavar="dotted.field=value", help=text)
    return parser


def add_check_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags that check a command and train nothing."""
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


def _device_count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of devices, like 8")
    return int(text)


class _ShowFields(argparse.Action):
    """Prints the fields and ends, as `--help` does."""

    def __call__(self, parser, namespace, values, option_string=None):
        try:
            print(fields.listed(find_config(str(values))), end="")
        except ValueError as error:
            parser.error(str(error))
        parser.exit()


def add_process_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that `experiment.distributed.initialize` reads."""
    group = parser.add_argument_group(
        "several processes",
        "found by themselves on TPU slices (also of GKE), under SLURM and Open MPI; "
        "elsewhere start\nthe same command N times, each with",
    )
    group.add_argument("--coordinator", metavar="HOST:PORT", help="of process 0, a free port")
    group.add_argument("--num-processes", type=int, metavar="N", help="how many there are")
    group.add_argument("--process-id", type=int, metavar="I", help="which this is, from 0")


def load_configs() -> dict[str, ExperimentConfig]:
    """Every config by name, found by walking this folder and those of the studies.

    Raises:
      ValueError: if two files define a config of one name.
    """
    found: dict[str, ExperimentConfig] = {}
    for name in _modules():
        module = importlib.import_module(name)
        cards = getattr(module, "cards", ())
        for config in (*getattr(module, "configs", ()), *(card.config for card in cards)):
            if config.name in found:
                raise ValueError(f"{name}: a config named {config.name} exists already")
            found[config.name] = config
    return found


def _modules() -> Iterator[str]:
    yield from (info.name for info in pkgutil.walk_packages(__path__, "configs."))
    # Files that define things, never imported by name: so a study may stand above what lists it.
    studies = Path(__path__[0]).with_name("studies")
    for folder in pkgutil.iter_modules([str(studies)], "studies."):
        if folder.ispkg:
            inside = [str(studies / folder.name.rpartition(".")[2])]
            yield from (info.name for info in pkgutil.iter_modules(inside, f"{folder.name}."))


def find_config(name: str) -> ExperimentConfig:
    """The preset called `name`.

    Raises:
      ValueError: if there is none, with the nearest name.
    """
    configs = load_configs()
    if name not in configs:
        raise ValueError(f"unknown config {name!r}; {nearest(name, configs)}")
    return configs[name]
