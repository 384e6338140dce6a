"""What command lines share."""

import argparse

from settings.messages import one_line


class Parser(argparse.ArgumentParser):
    """Says what is wrong on one line, without usage: scripts and people read the reason.

    `--help` teaches the rest.
    """

    def error(self, message, code=2):
        """Exits with 2: what a person has to mend."""
        self.exit(code, one_line(f"{self.prog}: error: {message}") + "\n")
