"""What command lines share."""

import argparse

from settings.messages import one_line


class Parser(argparse.ArgumentParser):
    """Says what is wrong on one line, without usage: scripts and people read the reason.

    `--help` teaches the rest.
    """

    def error(self, message):
        """Exits with 2."""
        self.exit(2, one_line(f"{self.prog}: error: {message}") + "\n")
