"""Trains a grid of members: `python sweep.py CONFIG --workdir DIR model.rotary.base=10,10000`.

Members that differ only in arrays (rotary schedule, window, seed, learning rate, the run they start
from), in every stage, train together in one compiled program, on identical batches and, for equal
seeds, from identical parameters.
Members whose shapes differ train one group after another. Each member's directory is what
`train.py` would have made.
"""

import dataclasses
import itertools
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

import train
from data.files import write_atomically
from experiment import distributed, overrides
from experiment.config import ExperimentConfig
from experiment.run import RunDirectory, is_same_sweep, read_sweep
from experiment.stages import split
from model.rotary.nope import Nope

SWEEP_HELP = """
sweeps: a comma makes members, several commas a grid
  model.rotary.base=10,100,1e4             three members, base=10, base=100 and base=1e4
  model.rotary.base=10,1e4 seed=0,1,2      six members
  "model.rotary=rope(base=500),nope"       two schedules
  train.learning_rate=1e-3,3e-3            two learning rates
  start_from=RUN model.rotary.base=10,100  all members from the parameters of one run
Without a comma, the config's own members are used, if it has any.
Real text: data.source=jsonl data.path=FILE_OR_FOLDER (RedPajama format; .jsonl, .gz, .zst)
"""


def shared_part(config: ExperimentConfig) -> tuple[ExperimentConfig, ...]:
    """Each stage of `config`, all that may differ within one compiled program set to one value."""
    return tuple(
        dataclasses.replace(
            stage.config,
            seed=0,
            start_from=config.start_from and "a run",
            model=dataclasses.replace(stage.config.model, rotary=Nope(), window=None),
            train=dataclasses.replace(stage.config.train, learning_rate=1.0),
        )
        for stage in split(config)
    )


def make_members(
    config: ExperimentConfig, given: Sequence[str]
) -> list[tuple[str, list[str], ExperimentConfig]]:
    """Name, overrides and config of every member.

    Raises:
      ValueError: if an override is wrong, or two members would be the same.
    """
    grid = overrides.grid(given)
    if len(grid) == 1 and config.members:
        common = grid[0][1]
        grid = [(name, [*own, *common]) for name, own in overrides.named(config.members)]
    if len(grid) == 1:
        raise ValueError(
            "nothing varies: list values with commas (model.rotary.base=10,10000), or use train.py"
        )
    members = [(name, own, overrides.apply(config, own)) for name, own in grid]
    names = [name for name, _, _ in members]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two members are called {name}: every listed value must be different")
    for one, other in itertools.combinations(members, 2):
        if one[2].start_from and dataclasses.replace(one[2], seed=other[2].seed) == other[2]:
            raise ValueError(
                f"{one[0]} and {other[0]} would be the same run: with start_from no parameter "
                "depends on seed; vary data.seed"
            )
    return members


def run_sweep(
    config_name: str, workdir: Path, given: Sequence[str], command: str, only: int | None = None
) -> bool:
    """Trains all members under `workdir`, or number `only` of them; whether they all finished.

    Raises:
      ValueError: for anything the user has to mend, before compute is spent.
    """
    with distributed.refusing_together():
        config = overrides.find_config(config_name)
        members = make_members(config, given)
        record = {
            "config": config_name,
            "overrides": list(given),
            "members": [name for name, _, _ in members],
        }
        exists = (workdir / "sweep.json").exists()
        if exists and not is_same_sweep(read_sweep(workdir), record):
            raise ValueError(
                f"{workdir} holds another sweep; use another --workdir, or delete that directory"
            )
        if only is not None and not 0 <= only < len(members):
            raise ValueError(f"no member {only}: the sweep has members 0 to {len(members) - 1}")
    groups: dict[tuple[ExperimentConfig, ...], list[int]] = {}
    for index in range(len(members)) if only is None else [only]:
        groups.setdefault(shared_part(members[index][2]), []).append(index)
    runs = [RunDirectory(workdir / name) for name, _, _ in members]
    for indices in groups.values():
        train.check([members[index][2] for index in indices], [runs[index] for index in indices])
    if distributed.is_first():
        workdir.mkdir(parents=True, exist_ok=True)
        write_atomically(workdir / "sweep.json", json.dumps(record, indent=2) + "\n")

    console = Console(stderr=True, quiet=not distributed.is_first())
    if len(groups) > 1:
        console.print(
            f"{len(members)} members of {len(groups)} shapes: "
            "one program a shape, one after another"
        )
    for indices in groups.values():
        chosen = [members[index] for index in indices]
        console.print(f"training {', '.join(name for name, _, _ in chosen)}", highlight=False)
        finished = train.train(
            [member for _, _, member in chosen],
            [runs[index] for index in indices],
            given_overrides=[own for _, own, _ in chosen],
            command=command,
        )
        if not finished:
            return False
    if only is None:
        console.print(
            f"finished. Next: python evaluate.py {workdir} && python report.py {workdir}",
            highlight=False,
        )
    return True


def main() -> int:
    """Command line of a sweep."""
    parser = overrides.argument_parser("sweep.py", __doc__, SWEEP_HELP)
    parser.add_argument("--member", type=int, metavar="N", help="train only this one, from 0")
    parser.add_argument("--list-members", action="store_true", help="print their names, in order")
    distributed.add_arguments(parser)
    arguments = parser.parse_intermixed_args()
    command = shlex.join(["python", *sys.argv])
    try:
        if arguments.list_members:
            config = overrides.find_config(arguments.config)
            print(*(name for name, _, _ in make_members(config, arguments.overrides)), sep="\n")
            return 0
        distributed.initialize(arguments)
        finished = run_sweep(
            arguments.config,
            Path(arguments.workdir),
            arguments.overrides,
            command,
            arguments.member,
        )
    except ValueError as error:
        parser.exit(2, f"sweep.py: error: {error}\n" if distributed.is_first() else None)
    except KeyboardInterrupt:  # before the first step there is nothing to save
        return 130
    return 0 if finished else 130


if __name__ == "__main__":
    sys.exit(main())
