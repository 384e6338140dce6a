"""Run studies: the many runs that answer one question.

    python -m studies forecast capability
    python -m studies run capability --only C1,C2 --seeds 0,1,2
    python -m studies status capability
    python -m studies report capability
    python -m studies run capability --part 3

`run` uses a process for each CPU core. Stop it and start it again at any time: finished rows are in
`studies/STUDY/rows`, and other runs continue from their last checkpoint in the work directory.
`parts` lists what machines can run independently. `run --part N` runs one part in this process, as
a job of a cluster does (slurm/submit.sh study, tpu/apply.sh --mode study).
"""

import argparse

from reporting.paths import check_page
from studies import load_cards
from studies.jobs import Progress, list_items, list_runs, make_job, parse_seeds
from utils.command_line import Parser, exit_with
from utils.paths import as_path

_COMMANDS = {
    "run": "run what is missing",
    "status": "print what is done and what is missing",
    "forecast": "compute the forecasts that `run` needs",
    "report": "draw the rows, and print every forecast and claim with its mark",
    "parts": "list what machines can run independently, one part a line, counted from 0",
}


def make_parser() -> Parser:
    """Make the parser of the command line."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = Parser(prog="python -m studies", description=__doc__, formatter_class=raw)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, help_text in _COMMANDS.items():
        command = commands.add_parser(name, help=help_text)
        command.add_argument("study", help="a folder of studies/, or the path of another folder")
        command.add_argument("--only", default="", metavar="CARDS", help="some cards, by commas")
        command.add_argument("--seeds", default="0", metavar="N,N", help="default 0")
        command.add_argument("--workdir", metavar="DIR", help="default runs/studies/STUDY")
        command.add_argument("--rows", metavar="DIR", help="default studies/STUDY/rows")
        command.add_argument(
            "--cores", type=int, metavar="N", help="for `run` and `forecast`; default: all"
        )
        command.add_argument("--part", type=int, metavar="N", help="for `run`: only this part")
        command.add_argument("--apart", action="store_true", help="one run per part, for CPUs")
        command.add_argument("--out", metavar="PAGE", help="default WORKDIR/report/report.html")
    return parser


def main() -> int:
    """Run the command line; return the exit status, 130 if a signal stopped it."""
    parser = make_parser()
    arguments = parser.parse_args()
    try:
        only = [name for name in arguments.only.split(",") if name]
        workdir = as_path(arguments.workdir) if arguments.workdir else None
        rows_folder = as_path(arguments.rows) if arguments.rows else None
        job = make_job(arguments.study, only, parse_seeds(arguments.seeds), workdir, rows_folder)
        out = as_path(arguments.out or job.workdir / "report" / "report.html")
        if arguments.cores is not None and arguments.cores < 1:
            raise ValueError(f"--cores must be at least 1, got {arguments.cores}")
        if arguments.command == "report":
            check_page(out)
        # There are at most as many parts as runs; to count the parts takes JAX.
        if arguments.part is not None and not 0 <= arguments.part < len(list_runs(job)):
            raise ValueError(
                f"no part {arguments.part}: `python -m studies parts {job.study}` lists them"
            )
    except (ValueError, OSError) as error:
        parser.refuse(error)
    # Late imports: they need JAX, and help and invalid arguments do not.
    from studies import forecasts, recall, report, schedule

    try:
        cards = [load_cards(job.study)[name] for name in job.cards]
        if arguments.command == "run":
            if arguments.part is None:
                is_done = schedule.run(job, num_workers=arguments.cores)
            else:
                is_done = schedule.run_part(job, arguments.part, apart=arguments.apart)
            return 0 if is_done else 130
        if arguments.command == "status":
            print(Progress(job).check_rows().describe_cards())
        elif arguments.command == "parts":
            schedule.check(job)
            print(*list_items(job, apart=arguments.apart), sep="\n")
        elif arguments.command == "forecast":
            for line in forecasts.write(job.study, cards):
                print(line)
            for line in recall.write(job.study, cards, arguments.cores):
                print(line, flush=True)
        else:
            print(*report.write(job, out), out, sep="\n")
    except (ValueError, OSError) as error:
        parser.refuse(error)
    return 0


if __name__ == "__main__":
    exit_with(main, "finished rows are kept, and the same command continues")
