"""Run studies: the runs that answer one question, and the claims about them.

    ropewalk studies run capability --only C1,C11 --seeds 0,1,2
    ropewalk studies status capability
    ropewalk studies report capability

Another folder is a study too: `ropewalk studies report path/to/study`. `run` trains each card as a
sweep. Stop it and start it again at any time: a finished run has a row in the study's folder, and
other runs continue from their last checkpoint in the work directory.
"""

import dataclasses

from ropewalk.studies import folder, load, load_cards
from ropewalk.utils.command_line import Parser, at_least, exit_with
from ropewalk.utils.paths import as_path

_COMMANDS = {
    "run": "train and measure what has no rows yet",
    "status": "print what is done and what is missing",
    "report": "print every claim with its number, interval and mark; write a page with figures",
}


def make_parser() -> Parser:
    """Make the parser of the command line."""
    parser = Parser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, help_text in _COMMANDS.items():
        command = commands.add_parser(name, help=help_text)
        command.add_argument("study", help="a folder of studies/, or the path of another folder")
        command.add_argument("--only", default="", metavar="CARDS", help="some cards, by commas")
        if name == "run":
            text = "config fields of this machine, such as data.path=FOLDER"
            command.add_argument("overrides", nargs="*", metavar="field=value", help=text)
            text = "some members of the cards, by commas"
            command.add_argument("--members", type=_names, default=(), metavar="NAMES", help=text)
        text = "default: those of each card"
        command.add_argument("--seeds", type=_seeds, metavar="N,N", help=text)
        command.add_argument("--workdir", metavar="DIR", help="default runs/studies/STUDY")
        command.add_argument("--rows", metavar="DIR", help="default rows/ of the study's folder")
        if name == "report":
            text = "default WORKDIR/report/report.html"
            command.add_argument("--out", metavar="PAGE", help=text)
    return parser


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _seeds(text: str) -> tuple[int, ...]:
    return tuple(dict.fromkeys(map(at_least(0), text.split(","))))


def main() -> int:
    """Run the command line; return the exit status, 130 if a signal stopped it."""
    parser = make_parser()
    # argparse gives a subcommand no positional arguments after its options.
    arguments, rest = parser.parse_known_args()
    if rest and (arguments.command != "run" or any(text.startswith("-") for text in rest)):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    study, command = arguments.study, arguments.command
    try:
        package, cards = load(study), load_cards(study, arguments.only)
        if seeds := arguments.seeds:
            cards = {name: dataclasses.replace(card, seeds=seeds) for name, card in cards.items()}
        if members := getattr(arguments, "members", None):
            cards = {name: card.only(members) for name, card in cards.items()}
        rows_folder = as_path(arguments.rows or folder(study) / "rows")
        name = package.__name__.rpartition(".")[2]
        workdir = as_path(arguments.workdir or f"runs/studies/{name}")
        # Late imports: they need JAX, and help and invalid arguments do not.
        if command == "report":
            from ropewalk.studies import report

            out = as_path(arguments.out or workdir / "report" / "report.html")
            print(*report.write(package, cards, rows_folder, out, seeds), out, sep="\n")
        else:
            from ropewalk.studies import run

            lines = run.status(cards, rows_folder)
            if command == "run":
                overrides = [*arguments.overrides, *rest]
                lines = run.run_cards(cards, workdir, rows_folder, overrides)
            for line in lines:
                print(line, flush=True)
    except (ValueError, OSError) as error:
        parser.refuse(error)
    return 0


if __name__ == "__main__":
    exit_with(main, "finished rows are kept, and the same command continues")
