"""The JSON items of a checkpoint: `data`, `config` and `digests`.

`digests` says what was saved, so that whatever reads a checkpoint finds out whether that is what it
has read (docs/reliability.md):

    arrays      digest of each array by its name, `params.embedding` (`experiment.digest`)
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

from experiment import stages
from experiment.config import ExperimentConfig, from_dict, to_dict
from experiment.records import MetricsDigest
from experiment.run import RunDirectory, first_difference
from utils import messages
from utils.manifest import digest
from utils.messages import quoted
from utils.paths import copy, is_outage

COULD_NOT_BE_READ = "could not be read"  # tells processes of a run that this is no damage
# TensorStore raises ValueErrors that begin with these for requests that a system refused. UNKNOWN
# stands for most codes of Linux, EIO among them.
_UNREAD_CODES = (
    *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "UNAVAILABLE", "UNAUTHENTICATED", "UNKNOWN"),
    *("DEADLINE_EXCEEDED", "CANCELLED", "ABORTED"),
)


class DamagedCheckpointError(ValueError):
    """A checkpoint that is not what was saved.

    Attributes:
      run: that saved it.
      what: the item or array, and what is wrong with it.
    """

    def __init__(self, run: RunDirectory, step: int, what: str):
        self.run, self.what = run, what
        super().__init__(
            f"{run.path}: checkpoint {step} is damaged ({what}); take another step, or delete "
            f"{folder_of(run, step)}"
        )


def data_state(run: RunDirectory, step: int) -> dict[str, Any]:
    """The item `data` of a checkpoint. Raises DamagedCheckpointError."""
    items, _ = read_items(run, step)
    return items["data"]


def copy_checkpoint(source: RunDirectory, step: int, target: RunDirectory) -> None:
    """A checkpoint of one run as a checkpoint of another, whose config.json is there already.

    Its arrays and rows stay what they are, and the digests that they are compared with.

    Raises:
      DamagedCheckpointError: if its JSON is not what was saved.
    """
    items, arrays = read_items(source, step)
    metrics = metrics_record(source, step)
    folder = folder_of(target, step)
    copy(folder_of(source, step), folder)
    dtypes = stored_dtypes(items)
    items["config"] = config_item(target, step, target.config_at(step))
    if dtypes:
        items["config"]["dtypes"] = dtypes
    _item_path(folder, "config").write_text(json.dumps(items["config"]), encoding="utf-8")
    record = digest_item(arrays, items, metrics)
    _item_path(folder, "digests").write_text(json.dumps(record), encoding="utf-8")


def write_items(
    run: RunDirectory, step: int, items: Mapping[str, Any], arrays: Mapping[str, str]
) -> None:
    """Items `data` and `config`, and `digests` of them and of `arrays`, as orbax writes them."""
    for name, item in {**items, "digests": digest_item(arrays, items)}.items():
        path = _item_path(folder_of(run, step), name)
        path.parent.mkdir()
        path.write_text(json.dumps(item), encoding="utf-8")


def folder_of(run: RunDirectory, step: int) -> Path:
    """Return the folder of a checkpoint."""
    return run.checkpoints_path / str(step)


def _item_path(folder: Path, name: str) -> Path:
    """Return the path of a JSON item, as orbax writes it."""
    return folder / name / "metadata"


def config_item(run: RunDirectory, step: int, config: ExperimentConfig) -> dict[str, Any]:
    """The item `config`; `run` is all of config.json, which can be made again of it."""
    return {
        "stage": stages.at(run.config, step).number,
        "positions": run.positions_at(step),
        "config": to_dict(config),
        "run": run.record,
    }


def digest_item(
    arrays: Mapping[str, str], items: Mapping[str, Any], metrics: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The item `digests`."""
    record: dict[str, Any] = {
        "arrays": dict(arrays),
        "items": {name: digest(item) for name, item in items.items()},
    }
    if metrics is not None:
        record["metrics"] = dict(metrics)
    return {**record, "checksum": digest(record)}


def read_items(run: RunDirectory, step: int) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Return items `data` and `config`, and the digests of the arrays.

    Raises:
      DamagedCheckpointError: if they are not what was saved.
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
      DamagedCheckpointError: if it is not what was saved.
    """
    record = _json_item(run, step, "digests")
    if record.pop("checksum", None) != digest(record):
        raise DamagedCheckpointError(run, step, "digests: not what was saved")
    return record


def metrics_record(run: RunDirectory, step: int) -> dict[str, Any] | None:
    """Return what the checkpoint of `step` says of metrics.jsonl (`MetricsDigest.record`)."""
    return read_digests(run, step).get("metrics")


def metrics_damage(run: RunDirectory) -> str:
    """Return the line that says what is wrong with metrics.jsonl; empty if nothing is known to be.

    The rows are compared with what the newest checkpoint says of them.
    """
    step = max(run.steps(), default=0)
    try:
        record = metrics_record(run, step) if step else None
    except DamagedCheckpointError:  # whoever reads its arrays reports it
        record = None
    if record is None:
        return ""
    if damage := MetricsDigest.of_rows(run.read_metrics(), step).difference(record):
        return f"{run.metrics_path} {damage} up to step {step}; put back a copy of the file"
    if lost := record.get("lost_up_to"):
        return f"{run.metrics_path} lost rows of the first {lost} steps before training went on"
    return ""


def stored_dtypes(items: Mapping[str, Any]) -> dict[str, str]:
    """Dtypes of parameters that were saved as something else than float32, by their names."""
    return dict(items["config"].get("dtypes", {}))


def _json_item(run: RunDirectory, step: int, name: str) -> dict[str, Any]:
    with one_line(run, step, name):
        text = _item_path(folder_of(run, step), name).read_text(encoding="utf-8")
        item = json.loads(text)
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
    """Raise DamagedCheckpointError for an item that was read and is not what was saved.

    Args:
      run, step, item: what is read inside.
      names: arrays in the item; a message that contains one is cut down to that name.
      but: an error that is passed on, as errors of memory and of importing are.

    Raises:
      DamagedCheckpointError: if a file is missing, or what it holds cannot be understood.
      ValueError: if it could not be read, which says nothing about what it holds.
    """
    try:
        yield
    except (but, MemoryError, ImportError, DamagedCheckpointError):
        raise
    # Orbax and TensorStore fail in many ways, and words, on files that are not what they wrote.
    except Exception as error:
        text = str(error) or type(error).__name__
        if is_outage(run.path, error) or _is_unread(error):
            raise ValueError(
                f"{folder_of(run, step)} {COULD_NOT_BE_READ} ({messages.one_line(text, 120)}); run "
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


def _is_unread(error: Exception) -> bool:
    """Return whether an error is of the machine (rights, a disk, open files), not of the data."""
    if isinstance(error, FileNotFoundError | IsADirectoryError | NotADirectoryError):
        return False
    # Exactly that type, as for threads that cannot be started: others derive from it.
    return (
        isinstance(error, OSError)
        or type(error) is RuntimeError
        or str(error).startswith(_UNREAD_CODES)
    )


def check_config(run: RunDirectory, step: int) -> None:
    """Check that config.json says what the checkpoint of `step` was made with.

    Raises:
      DamagedCheckpointError: if that cannot be read.
      ValueError: naming the field that differs.
    """
    items, _ = read_items(run, step)
    item, ours, positions = items["config"], run.config_at(step), run.positions_at(step)
    with one_line(run, step, "config"):
        difference = first_difference(ours, from_dict(item["config"]))
    if not difference and item.get("positions", positions) != positions:
        difference = "positions", positions, item["positions"]
    if difference:
        name, ours, theirs = difference
        raise ValueError(
            f"{run.path}/config.json says {name}={quoted(ours)} but checkpoint {step} was made "
            f"with {quoted(theirs)}; copy checkpoints/{step}/config/metadata to config.json there"
        )
