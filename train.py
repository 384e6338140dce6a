"""Trains a model: `python train.py CONFIG --workdir DIR [dotted.field=value ...]`.

A run is resumed by starting the same command again, and ends as if it had never stopped.
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
from experiment.inherit import describe, inherit
from experiment.run import RunDirectory
from utils.errors import UnreachableError


def main() -> int:
    """Command line of a single run."""
    parser = argument_parser("train.py", __doc__)
    add_check_arguments(parser)
    add_process_arguments(parser)
    arguments = parser.parse_intermixed_args()
    try:
        run, file_config = RunDirectory(arguments.workdir), find_config(arguments.config)
        config = inherit(file_config, arguments.overrides, run)
        inherited = describe(file_config, config, run)
    except (ValueError, UnreachableError) as error:
        parser.refuse(error)
    # After parsing: help, and a slip of the hand, need none of JAX.
    import evals
    from experiment import distributed, hosts
    from experiment.compiled import keep_programs
    from experiment.devices import PlatformError
    from training.divergence import DivergedError
    from training.loop import train
    from training.plan import check_plan, make_plan

    try:
        if not arguments.check:
            keep_programs()
        if arguments.devices is None:
            distributed.initialize(arguments)
            hosts.check_alike(arguments.workdir, config)
        evaluate, given = evals.while_training(config), [arguments.overrides]
        if arguments.check:
            checked = check_plan([config], [run], overrides=given, num_devices=arguments.devices)
            print(*[*inherited, *checked] if distributed.is_primary_host() else (), sep="\n")
            return 0
        for line in inherited if distributed.is_primary_host() else ():
            print(line, file=sys.stderr)
        command = shlex.join(["python", *sys.argv])
        plan = make_plan([config], [run], overrides=given)
        finished = train(plan, command=command, evaluate=evaluate)
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
    if finished and distributed.is_primary_host():
        print(f"finished. Next: python evaluate.py {run.path}", file=sys.stderr)
    return 0 if finished else 130


if __name__ == "__main__":
    sys.exit(main())
