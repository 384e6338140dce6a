"""Trains a model: `ropewalk train CONFIG --workdir DIR [dotted.field=value ...]`.

A run is resumed by starting the same command again, and ends as if it had never stopped.
"""

from ropewalk.training import command


def main() -> int:
    """Run the command line; return the exit status."""
    return command.train(__doc__)


if __name__ == "__main__":
    command.exit_with(main, "checkpoints are kept, and the same command continues")
