"""Import, export and evaluate models: python -m interop {export,import,lm_eval} ..."""

import utils.environment  # noqa: F401 - first: it checks that packages are installed

# isort: split
import argparse
import importlib
import sys
from collections.abc import Sequence

from utils.command_line import Parser

# Module and help text of each command. Only the module of the chosen one is imported.
COMMANDS = {
    "export": ("interop.export", "export a run as a Hugging Face folder"),
    "import": ("interop.importing", "import a Hugging Face folder as a run"),
    "lm_eval": ("interop.lm_eval", "evaluate a run with lm-evaluation-harness"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return the exit status."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    parser = Parser(prog="python -m interop", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    command = next((argument for argument in arguments if argument in COMMANDS), None)
    for name, (module, about) in COMMANDS.items():
        subparser = commands.add_parser(
            name, help=about, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        if name == command:
            command_module = importlib.import_module(module)
            subparser.description = command_module.__doc__
            command_module.add_arguments(subparser)
            subparser.set_defaults(run=command_module.main)
    options = parser.parse_args(arguments)
    # After parsing, because help does not need JAX.
    from experiment.compiled import keep_programs
    from experiment.devices import check_platform

    keep_programs()
    try:
        check_platform()
        return options.run(options)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
