"""Trains a grid of members: `python sweep.py CONFIG --workdir DIR model.rotary.base=10,10000`.

Members that differ only in arrays (rotary variant, window, learning rate, the run they start from),
in every stage, train together in one compiled program, on identical batches and, for equal seeds,
from identical parameters. Seeds train one after another through that program, each on rows of its
own; with data.seed=0 given they read the same rows, and train together. Members whose shapes differ
train one group after another. Each member's directory is what `train.py` would have made.
"""

import utils.environment  # noqa: F401 - first: it checks that packages are installed

# isort: split
import shlex
import sys

from configs import (
    add_check_arguments,
    add_process_arguments,
    argument_parser,
    find_config,
)
from experiment import overrides
from utils.errors import UnreachableError
from utils.paths import as_path


def main() -> int:
    """Command line of a sweep."""
    parser = argument_parser("sweep.py", __doc__, overrides.SWEEP_HELP)
    parser.add_argument("--member", type=int, metavar="N", help="train only this one, from 0")
    parser.add_argument("--list-members", action="store_true", help="print their names, in order")
    add_check_arguments(parser)
    add_process_arguments(parser)
    arguments = parser.parse_intermixed_args()
    given = arguments.overrides
    try:
        workdir = as_path(arguments.workdir)
        config = find_config(arguments.config)
        members = overrides.make_members(config, given, workdir)
    except (ValueError, UnreachableError) as error:
        parser.refuse(error)
    if arguments.list_members:
        print(*(member.name for member in members), sep="\n")
        return 0
    # After parsing: help, and a slip of the hand, need none of JAX.
    import evals
    from experiment import distributed, hosts
    from experiment.compiled import keep_programs
    from experiment.devices import PlatformError
    from training.divergence import DivergedError
    from training.sweep import check_sweep, train_sweep

    try:
        if not arguments.check:
            keep_programs()
        if arguments.devices is None:
            distributed.initialize(arguments, many_members=arguments.member is None)
            hosts.check_alike(workdir, (arguments.member, members))
        if arguments.check:
            checked = check_sweep(
                config,
                workdir,
                given,
                only=arguments.member,
                num_devices=arguments.devices,
                make_evaluate=evals.while_training,
            )
            print(*checked if distributed.is_primary_host() else (), sep="\n")
            return 0
        command = shlex.join(["python", *sys.argv])
        finished = train_sweep(
            config,
            workdir,
            given,
            command=command,
            only=arguments.member,
            make_evaluate=evals.while_training,
        )
    except DivergedError as error:
        parser.error(str(error), 1) if distributed.is_primary_host() else parser.exit(1)
    except PlatformError as error:  # each process says it: which is the first, only devices tell
        parser.refuse(error)
    except ValueError as error:
        parser.error(str(error)) if distributed.is_primary_host() else parser.exit(2)
    except UnreachableError as error:
        distributed.refuse(parser, error)
    except KeyboardInterrupt:  # before the first step there is nothing to save
        return 130
    if finished and arguments.member is None and distributed.is_primary_host():
        next_command = f"python evaluate.py {workdir} && python report.py {workdir}"
        print(f"finished. Next: {next_command}", file=sys.stderr)
    return 0 if finished else 130


if __name__ == "__main__":
    sys.exit(main())
