"""The launcher of train.py and sweep.py: everything after the command line is parsed."""

import shlex
import sys
from typing import NoReturn

from experiment import distributed, hosts
from experiment.compiled import keep_programs
from experiment.devices import PlatformError
from experiment.overrides import Job
from training.divergence import DivergedError
from training.sweep import MakeEvaluate, check_job, train_job
from utils.command_line import Parser
from utils.errors import UnreachableError


def launch(parser: Parser, arguments, job: Job, make_evaluate: MakeEvaluate) -> int:
    """Check or train `job`.

    Args:
      parser: exits after an error of the user.
      arguments: of the command line (`configs.training_parser`).
      job: what to train.
      make_evaluate: as in `training.sweep.train_job`.

    Returns:
      The exit status: 0, or 130 after a signal.
    """
    try:
        if not arguments.check:
            keep_programs()
        if arguments.devices is None:
            distributed.initialize(arguments, many_members=len(job.members) > 1)
            hosts.check_alike(job.workdir, job.members)
        if arguments.check:
            lines = check_job(job, num_devices=arguments.devices, make_evaluate=make_evaluate)
            print(*lines if distributed.is_primary_host() else (), sep="\n")
            return 0
        command = shlex.join(["python", *sys.argv])
        finished = train_job(job, command=command, make_evaluate=make_evaluate)
    except PlatformError as error:  # in all processes, because without devices none is the first
        parser.refuse(error)
    except DivergedError as error:
        _refuse_once(parser, error, 1)
    except ValueError as error:
        _refuse_once(parser, error, 2)
    except UnreachableError as error:
        distributed.refuse(parser, error)
    except KeyboardInterrupt:  # before the first step there is nothing to save
        return 130
    if finished and job.is_whole and distributed.is_primary_host():
        report = f" && python report.py {job.workdir}" if job.record else ""
        print(f"finished. Next: python evaluate.py {job.workdir}{report}", file=sys.stderr)
    return 0 if finished else 130


def _refuse_once(parser: Parser, error: ValueError, status: int) -> NoReturn:
    """Exit all processes; only the primary host prints the error."""
    if distributed.is_primary_host():
        parser.error(str(error), status)
    parser.exit(status)
