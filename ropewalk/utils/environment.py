"""Prepare the process of a command; end it in one line if Python lacks the packages of ropewalk.

`ropewalk` imports it first: otherwise the first package that is missing would print a traceback,
and so would Ctrl-C during the seconds of other imports. (Before it, Python itself starts: 0.1 s.)

Variables that a user exports for other programs do not reach a command: MPLBACKEND, which Jupyter
sets to a backend of its own Python, PYTHONOPTIMIZE=2, which removes the docstrings that `--help`
prints, and those of JAX that change what its functions return (`_JAX`), initial parameters for
example. Standard output takes every character, whatever its encoding.
"""

import sys  # the other modules are imported below, where Ctrl-C already ends in one line


def _print_one_line(kind, error, trace) -> None:
    """Report an error that ends the program; Ctrl-C in one line."""
    if issubclass(kind, KeyboardInterrupt):
        print("stopped", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)


import importlib.util  # noqa: E402
import io  # noqa: E402
import os  # noqa: E402
import warnings  # noqa: E402
from pathlib import Path  # noqa: E402

_ROOT = Path(__file__).resolve().parents[2]

_JAX = (
    *("JAX_ENABLE_X64", "JAX_NUMPY_DTYPE_PROMOTION", "JAX_NUMPY_RANK_PROMOTION"),
    *("JAX_DEFAULT_PRNG_IMPL", "JAX_THREEFRY_PARTITIONABLE", "JAX_RANDOM_SEED_OFFSET"),
)


def _ignore_late_reads(unraisable) -> None:
    """Report an error in a destructor or thread, unless a read ended after its event loop.

    After a damaged file of a checkpoint, orbax closes its event loop, and TensorStore's threads
    still report there what they read.
    """
    if "Event loop is closed" not in str(unraisable.exc_value):
        sys.__unraisablehook__(unraisable)


_SCRIPTS = ("train", "sweep", "evaluate", "generate", "report")


def _is_command() -> bool:
    """Return whether this process is a command of ropewalk, not a notebook or another program."""
    program = Path(sys.argv[0] if sys.argv else "").absolute()
    is_script = program.parent == _ROOT and program.stem in _SCRIPTS
    # `-m` while Python imports this package to find the module that it runs.
    return is_script or program.name in ("ropewalk", "-m") or _ROOT / "ropewalk" in program.parents


if _is_command():
    if importlib.util.find_spec("sentencepiece") is None:  # required, and rarely anywhere else
        activate = _ROOT / ".venv/bin/activate"
        command = f"source {os.path.relpath(activate)}"
        if not activate.exists():
            command = f"make -C {os.path.relpath(_ROOT)} setup && {command}"
        print(f"{sys.executable} lacks the packages of ropewalk. Run: {command}", file=sys.stderr)
        sys.exit(2)
    arguments = [word for word in sys.orig_argv if word not in ("-O", "-OO")]
    is_requested = os.environ.pop("PYTHONOPTIMIZE", "") or arguments != sys.orig_argv
    if sys.flags.optimize > 1 and is_requested:  # start again, with docstrings
        os.execv(sys.executable, [sys.executable, *arguments[1:]])
    os.environ["MPLBACKEND"] = "agg"
    for name in _JAX:
        os.environ.pop(name, None)
    warnings.formatwarning = lambda message, *_: f"warning: {message}\n"
    sys.excepthook = _print_one_line
    sys.unraisablehook = _ignore_late_reads
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:  # closed (`>&-`): the next file would get its number
            setattr(sys, name, open(os.devnull, "w" if number else "r"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
