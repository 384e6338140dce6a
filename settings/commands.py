"""What command lines share."""

import argparse

from settings.expressions import split_commas
from settings.messages import one_line, quoted

# How a process ends of whom another start may have more luck: another process is gone, a device or
# a bucket. xpk's JobSets restart on it, and on what signals leave behind (127 and more).
ANOTHER_START = 42


class Parser(argparse.ArgumentParser):
    """Says what is wrong on one line, without usage: scripts and people read the reason.

    `--help` teaches the rest.
    """

    def error(self, message, code=2):
        """Exits with 2: what a person has to mend."""
        self.exit(code, one_line(f"{self.prog}: error: {message}") + "\n")

    def refuse(self, error: Exception):
        """Exits with what `error` says, and its `status` if it has one."""
        self.error(str(error), getattr(error, "status", 2))


def tokens(text: str) -> int:
    """A number of tokens: `131072`, `1e5`, or `128k` and `1M` in powers of two.

    Raises:
      argparse.ArgumentTypeError: for anything else.
    """
    unit = {"k": 2**10, "m": 2**20}.get(text[-1:].lower(), 1)
    try:
        length = float(text[:-1] if unit > 1 else text) * unit
        if length != int(length) or length > _MOST_TOKENS:
            raise ValueError
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"{quoted(text)} is not a number of tokens, like 4096 or 128k"
        ) from None
    return int(length)


_MOST_TOKENS = 2**53  # the last whole number that a float tells from the next


def token_list(text: str) -> list[int]:
    """A comma list of `tokens`."""
    return [tokens(part) for part in text.split(",")]


def expression_list(text: str) -> list[str]:
    """A comma list of variants or tasks; their own brackets hold commas too."""
    try:
        return split_commas(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
