"""The command line of train.py and sweep.py: parse, check or train, print."""

import argparse
import dataclasses
import functools
import itertools
import os
import sys
from collections.abc import Callable, Sequence

from ropewalk import evals
from ropewalk.configs import argument_parser, find_config
from ropewalk.data import pipeline
from ropewalk.experiment import stages
from ropewalk.experiment.config import ExperimentConfig
from ropewalk.experiment.overrides import SWEEP_HELP, Sweep, check_used, make_sweep, single_run
from ropewalk.experiment.run import split_start
from ropewalk.utils.command_line import (
    Parser,
    add_process_flags,
    at_least,
    exit_with,
    next_command,
    typed_command,
)
from ropewalk.utils.errors import UnreachableError
from ropewalk.utils.expressions import unquote
from ropewalk.utils.paths import as_path

__all__ = ["exit_with", "sweep", "train"]


def train(description: str | None) -> int:
    """Run the command line of train.py; return the exit status."""
    parser = _parser(description)
    parser.set_defaults(list_members=False, apart=False)
    return _launch(parser, parser.parse_intermixed_args(), single_run)


def sweep(description: str | None) -> int:
    """Run the command line of sweep.py; return the exit status."""
    parser = _parser(description, SWEEP_HELP)
    text = "train only this one, from 0, of those that --list-members prints"
    parser.add_argument("--member", type=at_least(0), metavar="N", help=text)
    parser.add_argument("--list-members", action="store_true", help="print their names, in order")
    text = "draw N values from each range, such as train.learning_rate=log(1e-4,1e-2)"
    parser.add_argument("--random", type=at_least(1), metavar="N", help=text)
    text = "seed of these draws (default: 0)"
    parser.add_argument("--random-seed", type=at_least(0), default=0, metavar="SEED", help=text)
    text = "with --check: each member will train in a job with --devices of its own"
    parser.add_argument("--apart", action="store_true", help=text)
    arguments = parser.parse_intermixed_args()
    make = functools.partial(
        make_sweep,
        only=arguments.member,
        number=arguments.random,
        draw_seed=arguments.random_seed,
    )
    return _launch(parser, arguments, make)


def _parser(description: str | None, *more: str) -> Parser:
    """Make the parser: `configs.argument_parser` with checks and processes."""
    parser = argument_parser(description, *more, describe_cost=_describe_cost)
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


def _describe_cost(runs: Sequence[ExperimentConfig]) -> str:
    from ropewalk.experiment.cost import describe_cost  # late: it imports JAX

    return describe_cost(map(stages.split, runs))


# Variables of launchers that JAX knows: several processes may run the same command.
_LAUNCHERS = {"SLURM_JOB_ID", "OMPI_COMM_WORLD_SIZE", "TPU_WORKER_HOSTNAMES", "TPU_WORKER_ID"}


def _is_alone(arguments: argparse.Namespace) -> bool:
    """Return whether this process may exit without the others, which would wait for it."""
    is_started_once = arguments.num_processes is None and not _LAUNCHERS & os.environ.keys()
    return is_started_once or arguments.devices is not None


def _check(sweep: Sweep, *, is_elsewhere: bool) -> None:
    """Raise ValueError for mistakes that are seen without JAX, which takes seconds to start.

    Text that is not here is one, unless other machines will train (`is_elsewhere`).
    """
    sweep.check_workdir()
    text = {}
    for member in sweep.members:
        run = member.run
        run.check_resumable(run.pinned(member.config), sweep.workdir)
        check_used(member.config, member.overrides)
        for stage in stages.split(member.config):
            text.setdefault(run.with_own_tokenizer(stage.config.data))
            evals.parse_all(stage.config.train.eval_tasks + stage.config.evals.tasks)
    for data in text:
        if not (is_elsewhere and pipeline.absent_files(data)):
            pipeline.check_data(data)


def _without_absent_starts(
    config: ExperimentConfig, overrides: Sequence[str]
) -> tuple[ExperimentConfig, list[str], list[str]]:
    """Return a config and overrides that start from no run that is missing here, and the missing.

    A plan for other machines, on which they may be, is then that of fresh parameters.
    """
    changes = itertools.chain(overrides, *config.members)
    starts = [change for change in changes if change.startswith("start_from=")]
    starts += [f"start_from={config.start_from}"] if config.start_from else []
    absent = {
        start
        for start in starts
        if start != "start_from=none"
        and not as_path(split_start(unquote(start.partition("=")[2]))[0]).exists()
    }
    members = tuple(tuple(x for x in member if x not in absent) for member in config.members)
    start = None if f"start_from={config.start_from}" in absent else config.start_from
    config = dataclasses.replace(config, members=members, start_from=start)
    return config, [x for x in overrides if x not in absent], sorted(absent)


def _launch(parser: Parser, arguments: argparse.Namespace, make: Callable[..., Sweep]) -> int:
    """Check or train the sweep that `make` returns; return 0, or 130 after a signal."""
    if not arguments.check and (arguments.devices or arguments.apart):
        parser.error("--devices and --apart are for --check; leave them out")
    with parser.refusing(ValueError, UnreachableError):
        config, changes, absent = find_config(arguments.config), arguments.overrides, []
        if arguments.devices:
            config, changes, absent = _without_absent_starts(config, changes)
        sweep = make(config, arguments.workdir, changes)
        if arguments.list_members:
            print(*(member.name for member in sweep.members), sep="\n")
            return 0
        if _is_alone(arguments):
            _check(sweep, is_elsewhere=bool(arguments.devices))
    parts = [sweep]
    if arguments.apart and arguments.check:
        parts = [sweep._replace(members=[member]) for member in sweep.members]
    # After parsing: --help and invalid arguments need no JAX.
    from ropewalk.experiment import distributed
    from ropewalk.experiment.compiled import keep_programs
    from ropewalk.experiment.devices import PlatformError
    from ropewalk.training import budget
    from ropewalk.training.log import DivergedError
    from ropewalk.training.sweep import check_sweep, train_sweep

    try:
        if not arguments.check:
            keep_programs()
        if arguments.devices is None:
            distributed.initialize(arguments, many_members=len(parts[0].members) > 1)
            distributed.check_alike([part.members for part in parts])
            if not _is_alone(arguments):
                with distributed.refusing_together():
                    _check(sweep, is_elsewhere=False)
        config = sweep.config
        overrides = {*sweep.members[0].overrides}
        is_other = config.members and not any(overrides.issuperset(m) for m in config.members)
        if is_other and distributed.is_primary_host():
            members = f"the {len(config.members)} members of {config.name}"
            note = f"trains one model, without {members}; sweep.py trains them"
            if sweep.record:
                note = f"{members} are replaced by the values of this command"
            print(f"note: {note}", file=sys.stderr)
        if arguments.check:
            elsewhere = arguments.devices and (arguments.devices, arguments.num_processes or 1)
            lines = dict.fromkeys(
                f"not on this machine, and not checked: {start}" for start in absent
            )
            for part in parts:
                checks = check_sweep(part, elsewhere)
                for checked in checks:
                    lines |= dict.fromkeys(checked.describe())
                lines |= dict.fromkeys(
                    budget.describe_estimates(checks, is_elsewhere=bool(elsewhere))
                )
            print(*lines if distributed.is_primary_host() else (), sep="\n")
            return 0
        finished = train_sweep(sweep, command=typed_command())
    except PlatformError as error:  # in all processes, because without devices none is the first
        parser.refuse(error)
    except ValueError as error:  # in all processes, and printed once
        status = 1 if isinstance(error, DivergedError) else 2
        if distributed.is_primary_host():
            parser.error(str(error), status)
        parser.exit(status)
    except UnreachableError as error:
        distributed.refuse(parser, error)
    if finished and sweep.is_whole and distributed.is_primary_host():
        names = ["evaluate", "report"] if sweep.record else ["evaluate"]
        line = " && ".join(next_command(name, sweep.workdir) for name in names)
        print(f"finished. Next: {line}", file=sys.stderr)
    return 0 if finished else 130
