"""One member of a sweep, as a job of its own: `python -m tpu.member --number N CONFIG ...`.

For SLURM's array jobs and for one Kubernetes job a member, where `sweep.py` would train all members
in one program. Takes sweep.py's arguments; --list prints the members' names, in order, instead of
training one. All members together leave what sweep.py leaves, sweep.json included.
"""

import json
import shlex
import sys
from pathlib import Path

import sweep
import train
from data.files import write_atomically
from experiment import overrides
from experiment.run import RunDirectory, read_sweep


def run_member(
    number: int, config_name: str, workdir: Path, given: list[str], command: str
) -> bool:
    """Trains member `number`, from 0, under `workdir`; whether it finished.

    Raises:
      ValueError: for anything the user has to mend, before compute is spent.
    """
    members = sweep.make_members(overrides.find_config(config_name), given)
    names = [name for name, _, _ in members]
    if not 0 <= number < len(members):
        raise ValueError(f"no member {number}: the sweep has members 0 to {len(members) - 1}")
    record = {"config": config_name, "overrides": given, "members": names}
    if (workdir / "sweep.json").exists() and read_sweep(workdir) != record:
        raise ValueError(
            f"{workdir} holds another sweep; use another --workdir, or delete that directory"
        )
    name, own, config = members[number]
    run = RunDirectory(workdir / name)
    train.check([config], [run])
    workdir.mkdir(parents=True, exist_ok=True)
    write_atomically(workdir / "sweep.json", json.dumps(record, indent=2) + "\n")
    return train.train([config], [run], given_overrides=[own], command=command)


def main() -> int:
    """Command line; exit status 2 after one line for a mistake, 130 if a signal stopped it."""
    parser = overrides.argument_parser("python -m tpu.member", __doc__, sweep.SWEEP_HELP)
    parser.add_argument("--list", action="store_true", help="print the members' names")
    parser.add_argument("--number", type=int, metavar="N", help="the member to train, from 0")
    arguments = parser.parse_intermixed_args()
    try:
        if arguments.list:
            config = overrides.find_config(arguments.config)
            for name, _, _ in sweep.make_members(config, arguments.overrides):
                print(name)
            return 0
        if arguments.number is None:
            raise ValueError("needs --number N, or --list")
        finished = run_member(
            arguments.number,
            arguments.config,
            Path(arguments.workdir),
            arguments.overrides,
            shlex.join(["python", "-m", "tpu.member", *sys.argv[1:]]),
        )
    except ValueError as error:
        parser.exit(2, f"tpu.member: error: {error}\n")
    except KeyboardInterrupt:  # before the first step there is nothing to save
        return 130
    return 0 if finished else 130


if __name__ == "__main__":
    sys.exit(main())
