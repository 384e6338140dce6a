"""The identity of a run at one step: equal for copies of a run, different for other runs.

    CONFIG-PARAMETERS    12 hexadecimal digits each

CONFIG digests the fields of config.json that decide numbers, both seeds included. PARAMETERS
digests the array digests of the checkpoint, so no array is read. Neither depends on the place and
name of the run, or on the time and machine of its training: two trainings of one config that end
bit-identical are one run.
"""

import contextlib
import dataclasses
from collections.abc import Iterable
from typing import Any

from ropewalk.experiment.config import (
    PATH_FIELDS,
    REMOVED,
    ExperimentConfig,
    class_path,
    flatten,
    is_operational,
    to_dict,
)
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
    return f"{_config_digest(run)}-{digest(params)[:12]}"


def config_digest(config: ExperimentConfig, tokenizer_sha256: str | None) -> str:
    """Return the part of the identity that config.json decides."""
    fields = flatten(to_dict(config, _without_defaults))
    # The digests of parameters and the tokenizer's sha256 stand for what lies at paths.
    fields = {k: x for k, x in fields.items() if not is_operational(k) and k not in PATH_FIELDS}
    return digest([fields, tokenizer_sha256])[:12]


def _config_digest(run: RunDirectory) -> str:
    return config_digest(run.config, run.tokenizer_sha256)


def disagreement(run: RunDirectory, step: int, identity: str) -> str:
    """Return why `identity` is not that of `run` at `step`, in words; empty if it may be.

    Parameters are compared where the checkpoint of the step is still there.
    """
    if identity.partition("-")[0] != _config_digest(run):
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


# Defaults that a later version has changed, by field.
_FIRST_DEFAULTS = {"compute_dtype": "float32"}


def _without_defaults(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass, but those that mean the same when config.json lacks them.

    So a field that a later version adds changes no identity.
    """
    values = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    defaults = {field.name: field.default for field in dataclasses.fields(value)} | _FIRST_DEFAULTS
    changed = {name: item for name, item in values.items() if item != defaults[name]}
    return REMOVED.get(class_path(type(value)), {}) | changed
