"""The JSON items of a checkpoint: `data`, `config` and `digests`.

`digests` is the manifest of a checkpoint, with which readers verify it (docs/reliability.md):

    arrays      digest of each array by its name, `params.embedding` (`experiment.checkpoint`)
    items       sha256 of the JSON of `data` and `config`
    metrics     digest of the rows logged so far (`experiment.records.MetricsDigest`), if any
    checksum    sha256 of the JSON of all this

Nothing here needs JAX, or reads an array.
"""

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ropewalk.experiment import stages
from ropewalk.experiment.config import ExperimentConfig, first_difference, from_dict, to_dict
from ropewalk.experiment.records import MetricsDigest
from ropewalk.experiment.run import RunDirectory
from ropewalk.utils import messages
from ropewalk.utils.errors import is_request, is_unread, machine_error
from ropewalk.utils.limits import read_json
from ropewalk.utils.manifest import digest, seal, unseal
from ropewalk.utils.messages import quoted
from ropewalk.utils.paths import in_bucket

COULD_NOT_BE_READ = "could not be read"  # in messages about errors that are not damage


class DamagedCheckpointError(ValueError):
    """A checkpoint that differs from what was saved.

    Attributes:
      run: run of the checkpoint.
      what: the item or array, and its damage.
    """

    def __init__(self, run: RunDirectory, step: int, what: str):
        self.run, self.what = run, what
        super().__init__(
            f"{run.path}: checkpoint {step} is damaged ({what}); take another step, or delete "
            f"{folder_of(run, step)}"
        )


def write_items(
    run: RunDirectory, step: int, items: Mapping[str, Any], arrays: Mapping[str, str]
) -> None:
    """Write the items `data`, `config`, and `digests` of them and of `arrays`, as orbax does."""
    for name, item in {**items, "digests": digest_item(arrays, items)}.items():
        path = _item_path(folder_of(run, step), name)
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(item), encoding="utf-8")


def folder_of(run: RunDirectory, step: int) -> Path:
    """Return the folder of a checkpoint."""
    return run.checkpoints_path / str(step)


def _item_path(folder: Path, name: str) -> Path:
    """Return the path of a JSON item, as orbax writes it."""
    return folder / name / "metadata"


def config_item(run: RunDirectory, step: int, config: ExperimentConfig) -> dict[str, Any]:
    """Return the item `config`; its field `run` is a copy of config.json."""
    return {
        "stage": stages.stage_at(run.config, step).number,
        "positions": run.positions_at(step),
        "config": to_dict(config),
        "run": run.record,
    }


def digest_item(
    arrays: Mapping[str, str], items: Mapping[str, Any], metrics: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the item `digests`."""
    record: dict[str, Any] = {
        "arrays": dict(arrays),
        "items": {name: digest(item) for name, item in items.items()},
    }
    if metrics is not None:
        record["metrics"] = dict(metrics)
    return seal(record, "checksum")


def read_items(run: RunDirectory, step: int) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Return items `data` and `config`, and the digests of the arrays.

    Raises:
      DamagedCheckpointError: if they differ from what was saved.
    """
    items = {name: _json_item(run, step, name) for name in ("data", "config")}
    record = read_digests(run, step)
    for name, item in items.items():
        if record["items"].get(name) != digest(item):
            raise DamagedCheckpointError(run, step, f"{name}: not what was saved")
    return items, record["arrays"]


def read_digests(run: RunDirectory, step: int) -> dict[str, Any]:
    """Return the item `digests` without its checksum.

    Raises:
      DamagedCheckpointError: if it differs from what was saved.
    """
    record = _json_item(run, step, "digests")
    if not unseal(record, "checksum"):
        raise DamagedCheckpointError(run, step, "digests: not what was saved")
    return record


def metrics_damage(run: RunDirectory) -> str:
    """Describe the damage to metrics.jsonl; empty if none is known.

    The rows are compared with their digest in the newest checkpoint.
    """
    step = max(run.steps(), default=0)
    try:
        record = read_digests(run, step).get("metrics") if step else None
    except DamagedCheckpointError:  # readers of its arrays report it
        record = None
    if record is None:
        return ""
    rows = (row for row in run.read_metrics() if row["step"] <= step)
    if damage := MetricsDigest(rows).difference(record):
        return f"{run.metrics_path} {damage} up to step {step}; put back a copy of the file"
    if lost := record.get("lost_up_to"):
        steps = f"{lost} steps" if lost > 1 else "step"
        return f"{run.metrics_path} lost rows of the first {steps} before training went on"
    return ""


def _json_item(run: RunDirectory, step: int, name: str) -> dict[str, Any]:
    with one_line(run, step, name):
        item = read_json(_item_path(folder_of(run, step), name))
        if not isinstance(item, dict):
            raise ValueError("not a JSON object")
        return item


@contextlib.contextmanager
def one_line(
    run: RunDirectory,
    step: int,
    item: str,
    *,
    names: Iterable[str] = (),
    but: type[Exception] = MemoryError,
) -> Iterator[None]:
    """Turn errors of reading an item into DamagedCheckpointError, or ValueError if reading failed.

    Args:
      run, step, item: the item that is read inside.
      names: arrays in the item; a message that contains one is shortened to that name.
      but: an error that is passed on, like errors of memory and of imports.

    Raises:
      DamagedCheckpointError: if a file is missing, or its content is malformed.
      ValueError: if the file could not be read, so that its content is unknown.
    """
    try:
        yield
    except (but, MemoryError, ImportError, DamagedCheckpointError):
        raise
    # Orbax and TensorStore raise many kinds of errors for damaged files.
    except Exception as error:
        text = str(error) or type(error).__name__
        if is_unread(error) or (in_bucket(run.path) and is_request(error)):
            text = machine_error(error) or text
            raise ValueError(
                f"{folder_of(run, step)} {COULD_NOT_BE_READ} ({messages.one_line(text, 180)}); run "
                "the same command again"
            ) from error
        array_name = max((name for name in names if name in text), key=len, default="")
        if array_name:
            what = f"{item}.{array_name} cannot be read"
        elif isinstance(error, FileNotFoundError):
            what = f"{item}: missing"
        else:
            what = f"{item}: {messages.one_line(text, 80)}"
        raise DamagedCheckpointError(run, step, what) from error


def check_newest_config(run: RunDirectory) -> None:
    """Raise ValueError if config.json is not that of the newest checkpoint that can be read."""
    for step in reversed(run.steps()):
        with contextlib.suppress(DamagedCheckpointError):  # readers of its arrays report it
            check_config(run, step)
            return


def check_config(run: RunDirectory, step: int) -> dict[str, Any]:
    """Return the item `config`, if config.json has the config that the checkpoint was made with.

    Raises:
      DamagedCheckpointError: if the checkpoint cannot be read.
      ValueError: naming the field that differs, or for a step that the run does not reach.
    """
    if step > (end := stages.split(run.config)[-1].end):
        raise ValueError(
            f"{run.path}: checkpoint {step} is past the run's last step, {end}; delete "
            f"{folder_of(run, step)}, or rename it to the step that it was"
        )
    items, _ = read_items(run, step)
    item, ours, positions = items["config"], run.config_at(step), run.positions_at(step)
    with one_line(run, step, "config"):
        difference = first_difference(ours, from_dict(item["config"]))
    if not difference and item.get("positions", positions) != positions:
        difference = "positions", positions, item["positions"]
    for name, ours in run.record.items():  # the overrides too: pages print the command from them
        theirs = item.get("run", {}).get(name, ours)
        if not difference and name != "config" and theirs != ours:
            difference = name, ours, theirs
    if difference:
        name, ours, theirs = difference
        raise ValueError(
            f"{run.path}/config.json says {name}={quoted(ours)} but checkpoint {step} was made "
            f"with {quoted(theirs)}; copy checkpoints/{step}/config/metadata to config.json there"
        )
    return item
