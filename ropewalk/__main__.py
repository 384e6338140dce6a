"""The commands of ropewalk: `ropewalk NAME ...`, or `python -m ropewalk NAME ...`.

`ropewalk train ...` and four more files at the top of the repository are the same commands.
"""

import difflib
import os
import runpy
import sys
from pathlib import Path

# Name: module below `ropewalk` that is run, and what it does. Modules are imported by their
# command only: `--help` needs no JAX.
COMMANDS = {
    "train": ("train", "train a model"),
    "sweep": ("sweep", "train models that differ in a field"),
    "evaluate": ("evaluate", "measure the effective context of runs"),
    "report": ("reporting.command", "write the page of runs"),
    "generate": ("evals.generation.command", "continue a text"),
    "prepare": ("data.prepare", "tokenize text before training"),
    "runs": ("experiment", "list runs, delete old checkpoints"),
    "probes": ("probes", "analyze attention"),
    "view": ("probes.viewer", "write an interactive page of attention weights"),
    "theory": ("theory", "bounds, capability, and audits of published models"),
    "studies": ("studies", "repeat the committed experiments"),
    "import": ("interop", "make a run of a Hugging Face model"),
    "export": ("interop", "make a Hugging Face model of a run"),
    "aot": ("tpu.aot", "compile for chips that are not here"),
    "bench": ("tpu.benchmarks", "measure speed"),
}


def main() -> int:
    """Run the command that the first argument names; return the exit status."""
    name = sys.argv[1] if sys.argv[1:] else "--help"
    if "_ARGCOMPLETE" in os.environ:
        name = complete()
    if name in ("-h", "--help"):
        lines = [f"  {command:<12}{text}" for command, (_, text) in COMMANDS.items()]
        print("usage: ropewalk COMMAND ...\n", *lines, "\nropewalk COMMAND --help: more", sep="\n")
        print('completion of the Tab key: eval "$(ropewalk --completion bash)" (or zsh)')
        return 0
    if name == "--completion":
        try:
            from argcomplete.shell_integration import shellcode
        except ImportError:
            print("ropewalk: completion needs a package: pip install argcomplete", file=sys.stderr)
            return 2
        print(shellcode(["ropewalk"], shell=(sys.argv[2:] or ["bash"])[0]))
        return 0
    if name == "--version":
        from ropewalk.utils.version import __version__

        print("ropewalk", __version__)
        return 0
    if name not in COMMANDS:
        nearest = difflib.get_close_matches(name, COMMANDS, 1, 0)[0]
        print(f"ropewalk: no command {name!r}; did you mean {nearest!r}?", file=sys.stderr)
        return 2
    program = "ropewalk" if Path(sys.argv[0]).name == "ropewalk" else "python -m ropewalk"
    is_part = COMMANDS[name][0] == "interop"  # its parser reads the name
    sys.argv[:2] = [program, name] if is_part else [f"{program} {name}"]
    run(name)
    return 0


def complete() -> str:
    """Return the command that a shell's line names, for its parser to complete the rest.

    If the name itself is to be completed, print the names that it may be, and exit.
    """
    import argparse

    import argcomplete

    words = os.environ["COMP_LINE"][: int(os.environ["COMP_POINT"])].split(" ")
    if words[2:] and words[1] in COMMANDS:
        if COMMANDS[words[1]][0] != "interop":  # its parser reads the name
            os.environ["_ARGCOMPLETE"] = "2"
        return words[1]
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=COMMANDS)
    argcomplete.autocomplete(parser, always_complete_options=False)
    return "--help"


def run(name: str) -> None:
    """Run a command with the arguments in `sys.argv`, and exit."""
    runpy.run_module(f"ropewalk.{COMMANDS[name][0]}", run_name="__main__")


if __name__ == "__main__":
    sys.exit(main())
