"""Parts that command lines share."""

import argparse
import contextlib
import os
import re
import shlex
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from ropewalk.utils.errors import describe, machine_error
from ropewalk.utils.expressions import allow_files, split_commas, unquote
from ropewalk.utils.messages import one_line, quoted
from ropewalk.utils.plugins import allow, allowed


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line without usage, and which takes `--own FILE`.

    Descriptions are printed as they are written.
    """

    def __init__(self, *args, add_help=True, **kwargs):
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(*args, add_help=add_help, **kwargs)
        if add_help:  # the parents of a subcommand, which have no help, would define it twice
            self.add_argument(
                "--own",
                action=_AllowFile,
                metavar="FILE.py",
                help="a file of your code that this command may execute; repeat for several",
            )

    def parse_args(self, args=None, namespace=None) -> Any:
        """Parse a command line; complete it first if a shell asks for that."""
        self.complete()
        return super().parse_args(args, namespace)

    def complete(self) -> None:
        """Print the completions of a shell's line, and exit, if a shell asks for them."""
        if "_ARGCOMPLETE" in os.environ:
            import argcomplete  # late: only a completion needs it

            argcomplete.autocomplete(self)

    def error(self, message, code=2):
        """Exit with status 2 (an error of the user) after one line."""
        if message.startswith("unrecognized arguments"):
            message += "; --help lists the options; write lists with commas, fields as name=value"
        self.exit(code, one_line(f"{self.prog}: error: {message}") + "\n")

    def refuse(self, error: Exception):
        """Exit with the message of `error`, and its `status` if it has one."""
        self.error(describe(error), getattr(error, "status", 2))

    @contextlib.contextmanager
    def refusing(self, *kinds: type[Exception]) -> Iterator[None]:
        """Refuse errors of these kinds, which the body raises."""
        try:
            yield
        except kinds as error:
            self.refuse(error)


class _AllowFile(argparse.Action):
    """Permit a file to be executed; the parsed arguments do not contain it."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, default=argparse.SUPPRESS, **kwargs)

    def __call__(self, parser, namespace, values, option_string=None):
        allow(str(values))


def tokens(text: str) -> int:
    """Parse a number of tokens: `131072`, `1e5`, or `128k` and `1M` in powers of two.

    Raises:
      argparse.ArgumentTypeError: for anything else.
    """
    unit = {"k": 2**10, "m": 2**20}.get(text[-1:].lower(), 1)
    try:
        length = float(text[:-1] if unit > 1 else text) * unit
        if length != int(length) or not 0 < length <= _MAX_TOKENS:
            raise ValueError
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"{quoted(text)} is not a number of tokens up to 2^53, like 4096 or 128k"
        ) from None
    return int(length)


_MAX_TOKENS = 2**53  # the last integer that a float64 distinguishes from the next


def at_least(lowest: int) -> Callable[[str], int]:
    """Return a parser of integers from `lowest` to 10^18, for argparse."""

    def parse(text: str) -> int:
        if not text.isdecimal() or len(text) > 18 or int(text) < lowest:
            allowed = f"an integer from {lowest} to 10^18"
            raise argparse.ArgumentTypeError(f"{quoted(text)} is not {allowed}")
        return int(text)

    return parse


def token_list(text: str) -> list[int]:
    """Parse a comma list of `tokens`."""
    return [tokens(part) for part in text.split(",")]


def expression(text: str) -> str:
    """Return variants or tasks as typed; permit the files that they name to be executed."""
    allow_files(text)
    return text


def expression_list(text: str) -> list[str]:
    """Split a comma list of variants or tasks, as `expression`; commas in brackets do not split."""
    try:
        return [unquote(part.strip()) for part in split_commas(expression(text))]
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def format_command(name: str, *arguments: object) -> str:
    """Return a shell command line of ropewalk's command `name`."""
    return " ".join(["ropewalk", name, *map(_quote, arguments)])


def typed_command(arguments: Sequence[str] | None = None) -> str:
    """Return the command line of this process, or of its command with other arguments."""
    program = sys.argv[0]
    start = ["python", _quote(program)] if program.endswith(".py") else [program]
    return " ".join([*start, *map(_quote, sys.argv[1:] if arguments is None else arguments)])


def next_command(name: str, *arguments: object) -> str:
    """Return the command line of ropewalk's command `name`, started as this program was.

    It permits the files of code that this process may execute.
    """
    program = Path(sys.argv[0])
    start = ["python", "-m", "ropewalk", name]
    if program.suffix == ".py" and {program.stem, name} <= {*_SCRIPTS}:
        start = ["python", str(program.with_name(f"{name}.py"))]
    elif program.name.startswith("ropewalk "):
        start = ["ropewalk", name]
    files = [word for path in allowed() for word in ("--own", os.path.relpath(path))]
    return " ".join([*start, *map(_quote, [*arguments, *files])])


def _quote(argument: object) -> str:
    """Quote for a shell; in double quotes, which are easier to read, around single quotes.

    A path that begins like an option gets "./".
    """
    is_like_option = isinstance(argument, Path) and str(argument).startswith("-")
    text = f"./{argument}" if is_like_option else str(argument)
    plain = not re.search(r'["$`\\!]', text)
    return f'"{text}"' if "'" in text and plain else shlex.quote(text)


def requote(line: str) -> str:
    """Return a recorded shell line, its arguments quoted again; empty for other programs' lines.

    The line may come from somebody else's file, and readers copy it into a shell.
    """
    try:
        program, name, *arguments = shlex.split(line)
    except ValueError:
        return ""
    if program == "python":  # as it was started, or as older versions record it
        if name == "-m" and arguments:
            name, *arguments = arguments[arguments[0] == "ropewalk" :] or [""]
        path = Path(name)
        name = path.parent.name if path.name == "__main__.py" else path.name.removesuffix(".py")
        name = _RENAMED.get(name, name if name in _NAMES else "")
    # A backtick would end a block of code in Markdown.
    is_plain = line.isprintable() and "`" not in line
    is_ours = program in ("python", "ropewalk") and re.fullmatch("[a-z]+", name)
    return format_command(name, *arguments) if is_ours and is_plain else ""


_SCRIPTS = ("train", "sweep", "evaluate", "generate", "report")
_NAMES = (*_SCRIPTS, "prepare", "runs", "probes", "view", "studies", "theory", "import", "export")
_RENAMED = {"experiment": "runs", "data.prepare": "prepare"}


def print_text(text: str) -> None:
    """Print the result of a command; do not fail if the reader has closed the pipe (`| head`)."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        _discard_output()


def _discard_output() -> None:
    """Discard standard output from here on; Python would write the rest of its buffer at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _repeat_interrupt(unraisable: Any) -> None:
    """Interrupt again if a callback swallowed the KeyboardInterrupt, as JAX's of `gc` may."""
    if unraisable.exc_type is not KeyboardInterrupt:
        return sys.__unraisablehook__(unraisable)
    repeat = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    repeat.daemon = True
    repeat.start()


def exit_with(main: Callable[[], int | None], note: str = "") -> NoReturn:
    """Run a command and exit with its status.

    Ctrl-C exits with 130, and an error of the machine with 1, after one line, which says the
    `note`. Other errors are defects of the program and keep their tracebacks.
    """
    sys.unraisablehook = _repeat_interrupt
    try:
        status = main()
        print(end="", flush=True)  # here, and not after this function, a closed pipe is one line
        sys.exit(status)
    except KeyboardInterrupt:
        print(f"stopped; {note}" if note else "stopped", file=sys.stderr)
        sys.exit(130)
    except Exception as error:
        if not (reason := machine_error(error)):
            raise
        line = f"{Path(sys.argv[0]).name}: error: {reason}"
        print(one_line(f"{line}; {note}" if note else line), file=sys.stderr)
        # Whatever else fails at the exit, fails for the same reason.
        sys.unraisablehook = lambda unraisable: None
        if isinstance(error, BrokenPipeError):
            _discard_output()
        warnings.simplefilter("ignore")
        sys.exit(1)


def add_process_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `experiment.distributed.initialize`."""
    text = "detected on TPU slices (also of GKE), under SLURM and Open MPI; elsewhere start\n"
    text += "the same command N times, each with"
    add = parser.add_argument_group("several processes", text).add_argument
    add("--coordinator", metavar="HOST:PORT", help="address of process 0, with a free port")
    add("--num-processes", type=int, metavar="N", help="number of processes")
    add("--process-id", type=int, metavar="I", help="number of this process, from 0")
