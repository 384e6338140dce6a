"""Trains a model: `python train.py CONFIG --workdir DIR [dotted.field=value ...]`.

A run is resumed by starting the same command again, and ends as if it had never stopped.
"""

import utils.environment  # noqa: F401 - first: it checks that packages are installed

# isort: split
import sys

from configs import find_config, training_parser
from experiment.overrides import run_job
from utils.errors import UnreachableError


def main() -> int:
    """Run the command line; return the exit status."""
    parser = training_parser("train.py", __doc__)
    arguments = parser.parse_intermixed_args()
    try:
        job = run_job(find_config(arguments.config), arguments.workdir, arguments.overrides)
    except (ValueError, UnreachableError) as error:
        parser.refuse(error)
    # After parsing: --help and invalid arguments need no JAX.
    import evals
    from training.launch import launch

    return launch(parser, arguments, job, evals.while_training)


if __name__ == "__main__":
    sys.exit(main())
