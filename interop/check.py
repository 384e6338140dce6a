"""Compare a Hugging Face folder with a run. Exports and imports are accepted only if they agree.

Names and shapes of tensors prove little: a wrong base or another order of pairs has the same ones.
Each kind of error is tested where it is visible, at any depth and length:

- `choose.check_config` parses config.json. It compares sizes, windows and norm epsilon for
  equality, and the rotation as float64 frequencies and scales, to 1e-12.
- `check_layers` compares the frequencies, scales and window of each layer with those that
  `interop.measured_layers` measures on the code of transformers.
- `compare_logits` computes the logits of a row of up to 64 tokens from the files, with our model
  and with transformers. The root mean square of the difference is compared with the rounding of
  float32, which is measured: transformers computes the row in float32 and in float64, so errors of
  the conversion do not affect it. Another order of pairs or another epsilon differ by more than a
  thousand times that; 32 times is allowed.
- `check_mapping`: where transformers is not installed, or the model is too large, an import must
  read each number where the export has put it.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ropewalk.experiment.checkpoint import leaves_by_name, nested
from ropewalk.interop.choose import check_config
from ropewalk.interop.hf_config import parse_config
from ropewalk.interop.layers import PublishedModel, imported_layers
from ropewalk.interop.tensors import Tensors
from ropewalk.interop.transformers_model import TransformersModel, has_transformers
from ropewalk.interop.weights import Entry, make_entries
from ropewalk.model import transformer
from ropewalk.model.config import ModelConfig
from ropewalk.utils.limits import read_json
from ropewalk.utils.manifest import hash_file

# Largest difference, in roundings of float32. Rounding is chaotic in a real model: correct exports
# differ by up to 5 (cosines within 1e-6 count too), planted errors by more than 1,000.
ROUNDINGS = 32
# Bounds of the tolerance, relative to the spread of the logits. Below the first, cosines that are
# off by 1e-6 would fail; above the second, rounding could hide an error.
_MIN_TOLERANCE, _MAX_TOLERANCE = 2e-6, 1e-3
RECORD = "logit_check.json"  # in an exported folder
_MAX_BYTES = 2**32  # float32 parameters of models that are compared with transformers
_ROW = 64  # tokens: angles of transformers, in float32, are exact to 4e-6
_PRECISION = 3e-6  # of frequencies that transformers computes in float32, relative


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


class FolderModel(NamedTuple):
    """A folder and the model that it should contain.

    Attributes:
      tensors: tensors of the folder.
      hf_config: content of config.json.
      config: the model.
      context: trained context, tokens.
      entries: entries of all tensors.
    """

    tensors: Tensors
    hf_config: Mapping[str, Any]
    config: ModelConfig
    context: int
    entries: Sequence[Entry]


def reason_not_to_compare(config: ModelConfig) -> str:
    """Return why logits cannot be compared with transformers'; empty if they can."""
    if not has_transformers():
        return "no version that can be measured is installed (pip install '.[hf]')"
    if 4 * transformer.count_params(config)["total"] > _MAX_BYTES:
        return "the model is larger than 4 GiB in float32"
    return ""


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


def check_layers(theirs: PublishedModel, ours: PublishedModel) -> None:
    """Raise ValueError if transformers gives a layer another rotation or window than our import."""
    groups = {number: group for group in ours.groups for number in group.layers}
    longest = 2 * ours.context  # a window beyond that is not measured
    for group in theirs.groups:
        for number in group.layers:
            expected = groups[number]
            pairs = {
                "rotation": [x.inv_freq[x.inv_freq > 1e-20] for x in (group, expected)],
                "scale": [x.scales.rotated for x in (group, expected)],
                "window": [min(x.window or longest, longest) for x in (group, expected)],
            }
            if 2 * group.inv_freq.size < group.head_dim:
                pairs["scale of unrotated features"] = [
                    x.scales.unrotated for x in (group, expected)
                ]
            for name, (a, b) in pairs.items():
                if np.shape(a) != np.shape(b) or not np.allclose(a, b, _PRECISION, 1e-25):
                    raise ValueError(
                        f"layer {number}: transformers' {name} differs from the run's; nothing was "
                        "written"
                    )


def check_mapping(model: FolderModel) -> None:
    """Raise ValueError if an import of the folder reads another model or other parameters."""
    check_config(model.hf_config, model.config, model.context)
    source = parse_config(model.hf_config, "the folder", model.context)
    entries = make_entries(source.model, source.layout, source.architecture.fused)
    for written, read in zip(model.entries, entries, strict=True):
        # The functions only move numbers, so an array of all different ones shows what they do.
        shape = model.tensors.known[written.hf_name.format(layer=0)].shape
        numbers = np.arange(math.prod(shape), dtype=np.uint32).reshape(shape)
        pairs = zip(written.from_hf(numbers), read.from_hf(numbers), strict=True)
        names = [(entry.hf_name, entry.ours) for entry in (written, read)]
        if names[0] != names[1] or not all(np.array_equal(*pair) for pair in pairs):
            raise ValueError(
                f"{written.hf_name} would be imported as another parameter; nothing was written. "
                "Report this with the config.json"
            )


def compare_logits(model: FolderModel) -> Comparison:
    """Compare the logits that transformers computes from a folder with those of its run.

    Raises:
      ValueError: if config.json does not describe the run's model, or transformers has another
        rotation or window.
    """
    check_config(model.hf_config, model.config, model.context)
    count = min(_ROW, model.context)
    tokens_T = np.random.default_rng(0).integers(0, model.config.vocab_size, count)
    # The last position decides which list of two a `longrope` takes; its logits do not count.
    positions_T = np.append(np.arange(count - 1), model.context - 1)
    ours_TV = compute_our_logits(model, tokens_T, positions_T)[:-1]
    theirs = TransformersModel(model.tensors.folder, model.hf_config)
    check_layers(theirs.measure(model.context), imported_layers(model.hf_config))
    expected_TV = theirs.logits(tokens_T, positions_T)[:-1]
    theirs.model.double()
    rounding = _rms(theirs.logits(tokens_T, positions_T)[:-1], expected_TV)
    spread = float(expected_TV.std())
    tolerance = max(ROUNDINGS * rounding, _MIN_TOLERANCE * spread)
    tolerance = min(tolerance, _MAX_TOLERANCE * spread)
    return Comparison(count - 1, _rms(expected_TV, ours_TV), rounding, tolerance, spread)


def check_comparison(row: Comparison, subject: str) -> None:
    """Raise ValueError if the logits of `subject` differ from the run's by too much."""
    # Logits that are all equal prove nothing.
    if row.difference > row.tolerance or not row.spread:
        raise ValueError(
            f"{subject} differ from the run's by {row.difference:.2g} (root mean square; allowed: "
            f"{row.tolerance:.2g}, with spread {row.spread:.2g} and rounding {row.rounding:.2g}); "
            "nothing was written. Report this with the config.json"
        )


def _rms(a_TV: np.ndarray, b_TV: np.ndarray) -> float:
    """Return the root mean square of the difference; infinity if a logit is not finite."""
    difference = math.sqrt(np.mean(np.square(a_TV - b_TV, dtype=np.float64)))
    return difference if math.isfinite(difference) else math.inf


def compute_our_logits(model: FolderModel, tokens_T, positions_T) -> np.ndarray:
    """Return the logits of our model with the folder's tensors, float32 `[T, V]`."""
    network = dataclasses.replace(model.config.forward_architecture(), attention="xla")
    table, arrays = model.config.position_table(model.context), {}
    for name, array in read_arrays(model.config, model.entries, model.tensors):
        arrays[name] = np.asarray(array, np.float32)
    rows = tokens_T[None], positions_T[None]
    return np.asarray(transformer.document_logits(network, nested(arrays), table, *rows))[0]


def read_arrays(
    model: ModelConfig, entries: Sequence[Entry], tensors: Tensors
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield our arrays by name, stacked over layers, with one tensor of the files in memory."""
    leaves = leaves_by_name(transformer.abstract_params(model))
    for entry in entries:
        names = entry.names(model.num_layers)
        dtype = tensors.known[names[0]].dtype
        arrays = {name: np.empty(leaves[name].shape, dtype) for name in entry.ours}
        for layer, hf_name in enumerate(names):
            parts = entry.from_hf(tensors.read(hf_name))
            for name, part in zip(entry.ours, parts, strict=True):
                arrays[name][layer if entry.is_stacked else ...] = part
        for name in entry.ours:
            yield name, arrays.pop(name)
