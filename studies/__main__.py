"""Studies: many runs that answer one question, run to their end by one command.

    python -m studies forecast capability
    python -m studies run capability --only C1,C2 --seeds 0,1,2
    python -m studies status capability
    python -m studies report capability
    python -m studies run capability --part 3

`run` starts a worker a core, and is stopped and started again at will: what is finished lies in
`studies/STUDY/rows`, what is not goes on from its last checkpoint under the work directory. `parts`
lists what machines can work on without each other, for `run --part N` in a cluster's job
(slurm/submit.sh study, tpu/apply.sh --mode study): this process alone works on it then.
"""

import sys

from settings.commands import Parser
from settings.places import UnreachableError, place


def _parts(job, number: int | None, *, apart: bool) -> int:
    """Lists the parts of a study, or works on one; the exit status."""
    from studies import driver, worker
    from studies.queue import parts

    if number is None:
        print(*driver.listed_parts(job, apart=apart), sep="\n")
        return 0
    found = parts(job, apart=apart)
    if not 0 <= number < len(found):
        raise ValueError(f"no part {number}: {job.study} has parts 0 to {len(found) - 1}")
    return 0 if worker.work_here(job, found[number]) else 130


def main() -> int:
    """Command line of studies."""
    parser = Parser(prog="python -m studies", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, help_text in (
        ("run", "do what is missing"),
        ("status", "what is done and what is missing"),
        ("forecast", "compute what `run` wants to be known before it"),
        ("report", "draw what the rows say, and mark every forecast and claim"),
        ("parts", "what many machines can work on, a line each, counted from 0"),
    ):
        command = commands.add_parser(name, help=help_text)
        command.add_argument("study", help="a folder of studies/")
        command.add_argument("--only", default="", metavar="CARDS", help="some cards, by commas")
        command.add_argument("--seeds", default="0", metavar="N,N", help="default 0")
        command.add_argument("--workdir", metavar="DIR", help="default runs/studies/STUDY")
        command.add_argument("--rows", metavar="DIR", help="default studies/STUDY/rows")
        command.add_argument("--cores", type=int, metavar="N", help="of `run`; default: all")
        command.add_argument("--part", type=int, metavar="N", help="of `run`: only this one")
        command.add_argument("--apart", action="store_true", help="a part is one run, for CPUs")
        command.add_argument("--out", metavar="PAGE", help="default WORKDIR/report/report.html")
    arguments = parser.parse_args()
    # After parsing: --help needs none of JAX.
    from studies import driver, forecasts, load_cards, report
    from studies.queue import Queue, make_job, numbers

    try:
        only = [name for name in arguments.only.split(",") if name]
        workdir = place(arguments.workdir) if arguments.workdir else None
        kept = place(arguments.rows) if arguments.rows else None
        job = make_job(arguments.study, only, numbers(arguments.seeds), workdir, kept)
        if arguments.command == "parts" or arguments.part is not None:
            return _parts(job, arguments.part, apart=arguments.apart)
        if arguments.command == "run":
            return 0 if driver.run(job, num_workers=arguments.cores) else 130
        if arguments.command == "forecast":
            cards = load_cards(arguments.study)
            for line in forecasts.write(job.study, {name: cards[name] for name in job.cards}):
                print(line)
            return 0
        if arguments.command == "report":
            out = place(arguments.out or job.workdir / "report" / "report.html")
            report.write(job, out)
            print(out)
            return 0
        print(driver.status(Queue(job)))
    except (ValueError, UnreachableError) as error:
        parser.refuse(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
