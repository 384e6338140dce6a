"""Save the state of a run without training: `python -m tests.faults.save RUN STEP`.

It takes a fifth of the time of a trainer that makes the same calls, so that faults can be injected
at all of them.
"""

import jax
import jax.numpy as jnp

from experiment import checkpoint
from experiment.run import RunDirectory
from model.transformer import abstract_params
from utils.command_line import Parser, exit_with


def main() -> int:
    """Save, unless the checkpoint is there; read it back and compare its digests."""
    parser = Parser("python -m tests.faults.save")
    parser.add_argument("run")
    parser.add_argument("step", type=int)
    arguments = parser.parse_args()
    run, step = RunDirectory(arguments.run), arguments.step
    shapes = abstract_params(run.config.model)
    params = jax.tree.map(lambda x: jnp.full(x.shape, 0.5, x.dtype), shapes)
    try:
        checkpoints = checkpoint.Checkpoints(run, keep=9)
        if step not in run.steps():
            state = checkpoint.DataState(fingerprint="", rows=step)
            checkpoints.save(step, params, params, state, run.config)
        checkpoints.close()
        restored = checkpoint.restore(run, step, params=params, opt_state=params)
        checkpoint.verify(run, step, restored)
    except ValueError as error:
        parser.refuse(error)
    return 0


if __name__ == "__main__":
    exit_with(main)
