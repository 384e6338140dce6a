"""The command line of train.py and sweep.py: parse, check or train, print."""

import utils.environment  # noqa: F401 - first: it checks that packages are installed

# isort: split
import argparse
import itertools
import os
import shlex
import sys
from typing import NoReturn

import evals
from configs import argument_parser, find_config
from data import pipeline
from data.sources import reading_path, source_class
from experiment import stages
from experiment.overrides import SWEEP_HELP, Job, check_used, run_job, sweep_job
from experiment.run import RunDirectory
from utils.command_line import Parser, add_process_flags, at_least
from utils.errors import UnreachableError


def train(description: str | None) -> int:
    """Run the command line of train.py; return the exit status."""
    parser = _parser("train.py", description)
    arguments = parser.parse_intermixed_args()
    try:
        job = run_job(find_config(arguments.config), arguments.workdir, arguments.overrides)
        if _is_alone(arguments):
            _check(job)
    except (ValueError, UnreachableError) as error:
        parser.refuse(error)
    return _launch(parser, arguments, job)


def sweep(description: str | None) -> int:
    """Run the command line of sweep.py; return the exit status."""
    parser = _parser("sweep.py", description, SWEEP_HELP)
    parser.add_argument("--member", type=int, metavar="N", help="train only this one, from 0")
    parser.add_argument("--list-members", action="store_true", help="print their names, in order")
    text = "with --check: each member will train in a job with --devices of its own"
    parser.add_argument("--apart", action="store_true", help=text)
    arguments = parser.parse_intermixed_args()
    try:
        config = find_config(arguments.config)
        job = sweep_job(config, arguments.workdir, arguments.overrides, only=arguments.member)
        if arguments.list_members:
            print(*(member.name for member in job.members), sep="\n")
            return 0
        if _is_alone(arguments):
            _check(job)
    except (ValueError, UnreachableError) as error:
        parser.refuse(error)
    return _launch(parser, arguments, job)


def _parser(program: str, description: str | None, *more: str) -> Parser:
    """Make the parser: `configs.argument_parser` with checks and processes."""
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
        type=at_least(1),
        metavar="N",
        help="with --check: how many the --num-processes have that will train (default: this "
        "machine's)",
    )
    add_process_flags(parser)
    return parser


# Variables of launchers that JAX knows: several processes may run the same command.
_LAUNCHERS = {"SLURM_JOB_ID", "OMPI_COMM_WORLD_SIZE", "TPU_WORKER_HOSTNAMES", "TPU_WORKER_ID"}


def _is_alone(arguments: argparse.Namespace) -> bool:
    """Return whether this process may exit without the others, which would wait for it."""
    is_started_once = arguments.num_processes is None and not _LAUNCHERS & os.environ.keys()
    return is_started_once or arguments.devices is not None


def _check(job: Job) -> None:
    """Raise ValueError for mistakes that are seen without JAX, which takes seconds to start."""
    job.check_directories()
    text = {}
    for member in job.members:
        check_used(member.config, member.overrides)
        run = RunDirectory(job.workdir / member.name)
        for stage in stages.split(member.config):
            text.setdefault(run.with_own_tokenizer(stage.config.data))
            for task in stage.config.train.eval_tasks + stage.config.evals.tasks:
                evals.parse(task)
    for data in text:
        pipeline.check_data(data)
    read = any(source_class(data.source).needs_path for data in text)
    for data in text if not read else ():
        if data.path is not None:
            raise ValueError(
                f"data.source={data.source} does not read data.path={data.path}; set "
                f"data.source={' or '.join(reading_path())}, or leave data.path out"
            )


def _launch(parser: Parser, arguments: argparse.Namespace, job: Job) -> int:
    """Check or train `job`; return 0, or 130 after a signal."""
    # After parsing: --help and invalid arguments need no JAX.
    from experiment import distributed, hosts
    from experiment.compiled import keep_programs
    from experiment.devices import PlatformError
    from training.log import DivergedError
    from training.sweep import check_job, train_job

    def refuse_once(error: ValueError, status: int) -> NoReturn:
        """Exit all processes; only the primary host prints the error."""
        if distributed.is_primary_host():
            parser.error(str(error), status)
        parser.exit(status)

    try:
        if not arguments.check:
            keep_programs()
        if arguments.devices is None:
            distributed.initialize(arguments, many_members=len(job.members) > 1)
            hosts.check_alike(job.members)
            if not _is_alone(arguments):
                with distributed.refusing_together():
                    _check(job)
        if arguments.check:
            devices, processes = arguments.devices, arguments.num_processes or 1
            is_apart = getattr(arguments, "apart", False)  # train.py lacks it
            jobs = [job._replace(members=[m]) for m in job.members] if is_apart else [job]
            checks = (
                check_job(part, num_devices=devices, num_processes=processes) for part in jobs
            )
            lines = dict.fromkeys(itertools.chain.from_iterable(checks))
            print(*lines if distributed.is_primary_host() else (), sep="\n")
            return 0
        finished = train_job(job, command=shlex.join(["python", *sys.argv]))
    except PlatformError as error:  # in all processes, because without devices none is the first
        parser.refuse(error)
    except DivergedError as error:
        refuse_once(error, 1)
    except ValueError as error:
        refuse_once(error, 2)
    except UnreachableError as error:
        distributed.refuse(parser, error)
    if finished and job.is_whole and distributed.is_primary_host():
        path = shlex.quote(str(job.workdir))
        report = f" && python report.py {path}" if job.record else ""
        print(f"finished. Next: python evaluate.py {path}{report}", file=sys.stderr)
    return 0 if finished else 130
