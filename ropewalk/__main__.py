"""The commands of ropewalk from any folder: `ropewalk train CONFIG --workdir DIR ...`."""

import difflib
import runpy
import sys

COMMANDS = {
    "train": "train a model",
    "sweep": "train models that differ in a field",
    "evaluate": "measure the effective context of runs",
    "report": "write the page of runs",
    "generate": "continue a text",
    "probes": "analyze attention",
    "theory": "bounds, forecasts, and audits of published models",
    "interop": "import and export models",
    "studies": "repeat the committed experiments",
    "experiment": "list runs, delete old checkpoints",
}


def main() -> int:
    """Run the command that the first argument names; return the exit status."""
    name = sys.argv[1] if sys.argv[1:] else "--help"
    if name in ("-h", "--help"):
        lines = [f"  {command:<12}{text}" for command, text in COMMANDS.items()]
        print("usage: ropewalk COMMAND ...\n", *lines, "\nropewalk COMMAND --help: more", sep="\n")
        return 0
    if name not in COMMANDS:
        nearest = difflib.get_close_matches(name, COMMANDS, 1, 0)[0]
        print(f"ropewalk: no command {name!r}; did you mean {nearest!r}?", file=sys.stderr)
        return 2
    sys.argv[:2] = [f"ropewalk {name}"]
    runpy.run_module(f"ropewalk.{name}", run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
