"""Trains a grid of members: `ropewalk sweep CONFIG --workdir DIR model.rotary.base=10,10000`.

Members that differ only in arrays (rotary variant, window, learning rate, the run they start from),
in every stage, train together in one compiled program, on identical batches and, for equal seeds,
from identical parameters. Seeds train one after another through that program, each on rows of its
own; with data.seed=0 given they read the same rows, and train together. Members whose shapes differ
train one group after another. Each member's directory is what `train.py` would have made.
"""

from ropewalk.training import command


def main() -> int:
    """Run the command line; return the exit status."""
    return command.sweep(__doc__)


if __name__ == "__main__":
    command.exit_with(main, "checkpoints are kept, and the same command continues")
