"""The command line: configs found by name, changed by overrides, and grids of them.

overrides: any field of the config, by its dotted path
  train.num_steps=200                      a number (1e4 and 10_000 are numbers too)
  model.rotary.base=500                    a field of a nested object
  "model.rotary=yarn(base=1e4, factor=8, original_context_length=512)"
                                           a whole variant, as an expression
  "model.rotary=[rope(base=1e4),nope]"     a pattern, repeated over the layers
  "model.rotary=[[rope(base=10),nope]]"    a list within it: over a layer's key/value heads
  "model.rotary=mine.py:Bent(strength=2)"  a variant in a file of your own
  model.window=32  data.tokenizer=none     an optional value; none leaves it out
  evals.tasks=[kv,lines]                   a list
  mesh.data=2 mesh.fsdp=-1                 devices along an axis; -1: the rest of them
  start_from=runs/demo/base=10             parameters of another run (runs/...@STEP: of that step)
  "stages=[[data.context_length=512,train.num_steps=200],[...]]"
                                           stages after the first, each with its own changes

sweeps: a comma makes members, several commas a grid
  model.rotary.base=10,100,1e4             three members, base=10, base=100 and base=1e4
  model.rotary.base=10,1e4 seed=0,1,2      six members
  "model.rotary=rope(base=500),nope"       two variants
  train.learning_rate=1e-3,3e-3            two learning rates
  start_from=RUN model.rotary.base=10,100  all members from the parameters of one run
Without a comma, the config's own members are used, if it has any.
Real text: data.source=jsonl data.path=FILE_OR_FOLDER (RedPajama format; .jsonl, .gz, .zst)
"""

import argparse
import hashlib
import importlib
import itertools
import pkgutil
import re
from collections.abc import Sequence

from experiment.config import ExperimentConfig
from experiment.dotted import apply as apply  # part of the command line, for its callers
from settings.commands import Parser
from settings.expressions import nearest, split_commas

# Files and `--help` teach the same language: it is written down once, above.
_, OVERRIDES_HELP, SWEEP_HELP = str(__doc__).split("\n\n")


def argument_parser(program: str, description: str | None, *more: str) -> Parser:
    """The command line `CONFIG --workdir DIR [overrides]`; its help lists configs, and `more`."""

    class ConfigParser(Parser):
        def format_help(self) -> str:
            configs = load_configs().values()
            listed = "".join(f"  {each.name:<30} {each.question}\n" for each in configs)
            parts = super().format_help(), f"configs:\n{listed}", f"{OVERRIDES_HELP}\n", *more
            return "\n".join(parts)

    parser = ConfigParser(
        prog=program, description=description, formatter_class=argparse.RawTextHelpFormatter
    )
    add = parser.add_argument
    add("config", metavar="CONFIG", help="a config's name, from the list below")
    add("--workdir", metavar="DIR", required=True, help="where results go")
    add("overrides", nargs="*", metavar="dotted.field=value", help="changes to the config")
    return parser


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


def member_name(varying: Sequence[str]) -> str:
    """A member's directory: what varies, `base=10,seed=1`; safe as a file name.

    A name too long for a file system ends in a hash of all of it.
    """
    parts = []
    for override in varying:
        path, _, value = override.partition("=")
        if value.startswith("["):  # checkpoints cannot lie where a path has brackets
            value = "+".join(map(_unbracketed, split_commas(value[1:-1])))
        parts.append(f"{path.rpartition('.')[2]}={value}")
    # Commas, "=" and dots are fine in paths; globs are not in orbax's, slashes and spaces in none.
    name = re.sub(r"[/*?\[\]]", "_", ",".join(parts)).replace(" ", "")
    if len(name) <= 120:
        return name
    return f"{name[:110]}~{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _unbracketed(value: str) -> str:
    """A list within a list (heads of a layer) as `(a+b)`."""
    return f"({'+'.join(split_commas(value[1:-1]))})" if value.startswith("[") else value


def named(members: Sequence[Sequence[str]]) -> list[tuple[str, Sequence[str]]]:
    """Each member's overrides under a name made of those that not all members have."""
    return [
        (member_name([o for o in own if not all(o in other for other in members)]), own)
        for own in members
    ]


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
