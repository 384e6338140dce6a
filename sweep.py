"""Trains a grid of members: `python sweep.py CONFIG --workdir DIR model.rotary.base=10,10000`.

Members that differ only in arrays (rotary variant, window, learning rate, the run they start from),
in every stage, train together in one compiled program, on identical batches and, for equal seeds,
from identical parameters. Seeds train one after another through that program, each on rows of its
own; with data.seed=0 given they read the same rows, and train together. Members whose shapes differ
train one group after another. Each member's directory is what `train.py` would have made.
"""

import utils.environment  # noqa: F401 - first: it checks that packages are installed

# isort: split
import sys

from configs import find_config, training_parser
from experiment.overrides import SWEEP_HELP, sweep_job
from utils.errors import UnreachableError


def main() -> int:
    """Run the command line; return the exit status."""
    parser = training_parser("sweep.py", __doc__, SWEEP_HELP)
    parser.add_argument("--member", type=int, metavar="N", help="train only this one, from 0")
    parser.add_argument("--list-members", action="store_true", help="print their names, in order")
    arguments = parser.parse_intermixed_args()
    try:
        config = find_config(arguments.config)
        job = sweep_job(config, arguments.workdir, arguments.overrides, only=arguments.member)
    except (ValueError, UnreachableError) as error:
        parser.refuse(error)
    if arguments.list_members:
        print(*(member.name for member in job.members), sep="\n")
        return 0
    # After parsing: --help and invalid arguments need no JAX.
    import evals
    from training.launch import launch

    return launch(parser, arguments, job, evals.while_training)


if __name__ == "__main__":
    sys.exit(main())
