"""Importing this module ends a command in one line if the Python lacks the packages of ropewalk.

Commands import it first: otherwise the first package that is missing would print a traceback, and
so would Ctrl-C during the seconds of other imports. (Before it, Python itself starts: 0.1 s.)
"""

import sys  # the other modules are imported below, where Ctrl-C already ends in one line


def _print_one_line(kind, error, trace) -> None:
    """Report an error that ends the program; Ctrl-C in one line."""
    if issubclass(kind, KeyboardInterrupt):
        print("stopped", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)


sys.excepthook = _print_one_line

import importlib.util  # noqa: E402

if importlib.util.find_spec("sentencepiece") is None:  # required, and rarely anywhere else
    import os
    from pathlib import Path

    activate = Path(__file__).parents[1] / ".venv/bin/activate"
    command = f"source {os.path.relpath(activate)}"
    if not activate.exists():
        command = f"make -C {os.path.relpath(Path(__file__).parents[1])} setup && {command}"
    print(f"{sys.executable} lacks the packages of ropewalk. Run: {command}", file=sys.stderr)
    sys.exit(2)
