"""The identity of a run at one step: equal for copies of a run, different for other runs.

    CONFIG-PARAMETERS    12 hexadecimal digits each

CONFIG digests the fields of config.json that decide numbers, both seeds included. PARAMETERS
digests the array digests of the checkpoint, so no array is read. Neither depends on the place and
name of the run, or on the time and machine of its training: two trainings of one config that end
bit-identical are one run.
"""

import contextlib
from collections.abc import Iterable

from ropewalk.experiment.items import DamagedCheckpointError, read_digests
from ropewalk.experiment.run import RunDirectory
from ropewalk.utils.manifest import digest


def run_id(run: RunDirectory, step: int) -> str:
    """Return the identity of `run` at the checkpoint of `step`.

    Raises:
      ValueError: if config.json or the digests of the checkpoint cannot be read.
    """
    arrays = read_digests(run, step)["arrays"]
    params = {name: value for name, value in arrays.items() if name.startswith("params.")}
    return f"{run.config_digest}-{digest(params)[:12]}"


def disagreement(run: RunDirectory, step: int, identity: str) -> str:
    """Return why `identity` is not that of `run` at `step`, in words; empty if it may be.

    Parameters are compared where the checkpoint of the step is still there.
    """
    if identity.partition("-")[0] != run.config_digest:
        return "another config or seed"
    checkpoint_id = checkpoint_ids(run, [step]).get(step)
    if checkpoint_id and checkpoint_id != identity:
        return f"other parameters at step {step}"
    return ""


def checkpoint_ids(run: RunDirectory, steps: Iterable[int] | None = None) -> dict[int, str]:
    """Return the identity at each intact checkpoint, of `steps` or of all."""
    ids = {}
    for step in set(run.steps()) & set(run.steps() if steps is None else steps):
        with contextlib.suppress(DamagedCheckpointError):  # whoever reads its arrays reports it
            ids[step] = run_id(run, step)
    return ids
