"""Compare a Hugging Face folder with a run. Exports and imports are accepted only if they agree.

Names and shapes of tensors prove little: a wrong base or another order of pairs has the same ones.
Each kind of error is tested where it is visible, at any depth and length:

- `choose.check_config` parses config.json. It compares sizes, windows and norm epsilon for
  equality, and the rotation as float64 frequencies and scales, to 1e-12.
- `layers.find_difference` compares the frequencies, scales and window of each layer with those that
  `interop.measured_layers` measures on the code of transformers.
- `compare_logits` computes the logits of a row of up to 64 tokens from the files, with our model
  and with transformers. The root mean square of the difference is compared with the rounding of
  float32, which is measured: transformers computes the row in float32 and in float64, so errors of
  the conversion do not affect it. Another order of pairs or another epsilon differ by more than a
  thousand times that; 32 times is allowed.
- `check_parameters`: an import must read each number where the export has put it.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ropewalk.experiment.checkpoint import digests, leaves_by_name, nested
from ropewalk.interop.hf_config import HfModel
from ropewalk.interop.layers import find_difference, imported_layers
from ropewalk.interop.tensors import Tensors
from ropewalk.interop.transformers_model import (
    class_defaults,
    compute_logits,
    has_transformers,
    load,
)
from ropewalk.model import transformer
from ropewalk.model.config import ModelConfig
from ropewalk.utils.limits import read_json
from ropewalk.utils.manifest import hash_file
from ropewalk.utils.messages import quoted

# Largest difference, in roundings of float32. Rounding is chaotic in a real model: correct exports
# differ by up to 5 (cosines within 1e-6 count too), planted errors by more than 1,000.
ROUNDINGS = 32
# Bounds of the tolerance, relative to the spread of the logits. Below the first, cosines that are
# off by 1e-6 would fail; above the second, rounding could hide an error.
_MIN_TOLERANCE, _MAX_TOLERANCE = 2e-6, 1e-3
RECORD = "logit_check.json"  # in an exported folder
_MAX_BYTES = 2**32  # float32 parameters of models that are compared with transformers
_ROW = 64  # tokens: angles of transformers, in float32, are exact to 4e-6


class Comparison(NamedTuple):
    """The comparison of one row; differences are root mean squares over all its logits.

    Attributes:
      num_tokens: tokens of the row.
      difference: between the logits of the folder and of the run.
      rounding: between transformers' float32 and float64.
      tolerance: largest difference allowed.
      spread: standard deviation of the logits.
    """

    num_tokens: int
    difference: float
    rounding: float
    tolerance: float
    spread: float

    def __str__(self):
        return (
            f"transformers' logits of {self.num_tokens} tokens: difference {self.difference:.1e}, "
            f"allowed {self.tolerance:.1e} (root mean squares; float32 rounding "
            f"{self.rounding:.1e}, spread {self.spread:.2g})"
        )


def reason_not_to_compare(config: ModelConfig) -> str:
    """Return why logits cannot be compared with transformers'; empty if they can."""
    if not has_transformers():
        return "no version that can be measured is installed (pip install '.[hf]')"
    if 4 * transformer.count_params(config)["total"] > _MAX_BYTES:
        return "the model is larger than 4 GiB in float32"
    return ""


def refuse_unread(source: HfModel, reason: str) -> None:
    """Raise ValueError for a key of config.json that may change logits, and that nothing has read.

    Args:
      source: the model.
      reason: why its logits are not compared.
    """
    defaults = class_defaults(source.architecture.model_type)
    for name in source.unread:
        value = source.keys[name]
        if defaults is None or defaults.get(name, value) != value:
            raise ValueError(
                f"config.json: {name}={quoted(value, 40)} is not read, and logits are not compared "
                f"({reason}); if the model computes the same without this key, remove it"
            )


def digest_files(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of the files of an export that are neither config.json nor tensors."""
    names = [path.name for path in sorted(folder.iterdir())]
    others = ("config.json", "model", ".")  # compared by value, by tensor, and files of locks
    return {name: _digest_file(folder / name) for name in names if not name.startswith(others)}


def _digest_file(path: Path) -> str:
    return hash_file(path) if path.is_file() else ""


def check_record(folder: Path, digest: str) -> None:
    """Raise ValueError if a folder has changed since its `logit_check.json`, if any, was written.

    Files and keys of config.json that were added later are no change.

    Args:
      folder: a Hugging Face folder.
      digest: digest of its tensors, from `interop.tensors.digest_tensors`.
    """
    path = folder / RECORD
    if not path.exists():
        return
    advice = f"download the folder again, or delete {RECORD} to import it as it is"
    try:
        record = read_json(path)
        expected, written = record["tensors"], dict(record["config"])
        files = dict(record.get("files", {}))  # older exports have none
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(f"{path} is damaged; {advice}") from error
    stated = read_json(folder / "config.json")
    changed = ["tensors have changed"] if expected != digest else []
    changed += [
        f"{key} of config.json has changed"
        for key, value in written.items()
        if key not in stated or stated[key] != value
    ]
    changed += [
        f"{Path(name).name} has changed"
        for name, content in files.items()
        if _digest_file(folder / Path(name).name) != content
    ]
    if changed:
        raise ValueError(f"{folder}: {changed[0]} since {RECORD} was written; {advice}")


def check_parameters(
    source: HfModel, tensors: Tensors, read: Callable[[str], np.ndarray], class_name: str
) -> None:
    """Raise ValueError if an import of a folder gives other parameters than those of its run.

    Args:
      source: the model of the folder's config.json.
      tensors: the folder's tensors.
      read: returns a parameter of the run by name.
      class_name: name of the class, for messages.
    """
    # One array is in memory at a time.
    arrays = read_arrays(source, tensors)
    expected = {name: (array.dtype, digests({name: array})) for name, array in arrays}
    for name, (dtype, digest) in expected.items():
        if digests({name: read(name).astype(dtype, copy=False)}) != digest:
            raise ValueError(
                f"{class_name}: {name} would be imported with other numbers; nothing was written. "
                "Report this with the config.json"
            )


def compare_logits(
    tensors: Tensors, hf_config: Mapping[str, Any], source: HfModel, subject: str
) -> Comparison:
    """Compare the logits that transformers computes from a folder with those of its run.

    Args:
      tensors: tensors of the folder.
      hf_config: content of its config.json.
      source: the model that it describes.
      subject: name of the logits in messages.

    Raises:
      ValueError: if they differ, or transformers has another rotation or window.
    """
    from ropewalk.interop import measured_layers  # late: it imports transformers

    count = min(_ROW, source.context)
    tokens_T = np.random.default_rng(0).integers(0, source.model.vocab_size, count)
    # The last position decides which list of two a `longrope` takes; its logits do not count.
    positions_T = np.append(np.arange(count - 1), source.context - 1)
    ours_TV = _compute_our_logits(tensors, source, tokens_T, positions_T)[:-1]
    theirs = load(tensors.folder)
    measured = measured_layers.measure(theirs.config.to_dict(), source.context)
    if difference := find_difference(measured, imported_layers(hf_config)):
        raise ValueError(f"{difference} from the run's; nothing was written")
    expected_TV = compute_logits(theirs, tokens_T, positions_T)[:-1]
    rounding = _rms(compute_logits(theirs.double(), tokens_T, positions_T)[:-1], expected_TV)
    spread = float(expected_TV.std())
    tolerance = max(ROUNDINGS * rounding, _MIN_TOLERANCE * spread)
    tolerance = min(tolerance, _MAX_TOLERANCE * spread)
    difference = _rms(expected_TV, ours_TV)
    # Logits that are all equal prove nothing.
    if difference > tolerance or not spread:
        raise ValueError(
            f"{subject} differ from the run's by {difference:.2g} (root mean square; allowed: "
            f"{tolerance:.2g}, with spread {spread:.2g} and rounding {rounding:.2g}); nothing was "
            "written. Report this with the config.json"
        )
    return Comparison(count - 1, difference, rounding, tolerance, spread)


def _rms(a_TV: np.ndarray, b_TV: np.ndarray) -> float:
    """Return the root mean square of the difference; infinity if a logit is not finite."""
    difference = math.sqrt(np.mean(np.square(a_TV - b_TV, dtype=np.float64)))
    return difference if math.isfinite(difference) else math.inf


def _compute_our_logits(tensors: Tensors, source: HfModel, tokens_T, positions_T) -> np.ndarray:
    """Return the logits of our model with the folder's tensors, float32 `[T, V]`."""
    network = dataclasses.replace(source.model.forward_architecture(), attention="xla")
    arrays = read_arrays(source, tensors)
    params = nested({name: np.asarray(array, np.float32) for name, array in arrays})
    table = source.model.position_table(source.context)
    rows = tokens_T[None], positions_T[None]
    return np.asarray(transformer.document_logits(network, params, table, *rows))[0]


def read_arrays(source: HfModel, tensors: Tensors) -> Iterator[tuple[str, np.ndarray]]:
    """Yield our arrays by name, stacked over layers, with one tensor of the files in memory."""
    leaves = leaves_by_name(transformer.abstract_params(source.model))
    for entry in source.entries():
        names = entry.names(source.model.num_layers)
        dtype = tensors.known[names[0]].dtype
        arrays = {name: np.empty(leaves[name].shape, dtype) for name in entry.ours}
        for layer, hf_name in enumerate(names):
            parts = entry.from_hf(tensors.read(hf_name))
            for name, part in zip(entry.ours, parts, strict=True):
                arrays[name][layer if entry.is_stacked else ...] = part
        for name in entry.ours:
            yield name, arrays.pop(name)
