"""Compare a Hugging Face folder with a run. Exports and imports are accepted only if they agree.

Names and shapes of tensors prove little: a wrong base or another order of pairs has the same ones.
Each kind of error is tested where it is visible, at any depth and length:

- `check_config` parses config.json. It compares sizes, windows and norm epsilon for equality, and
  the rotation as float64 frequencies and scales, to 1e-12.
- `check_layers` compares the frequencies, scales and window of each layer with those that
  `interop.measured_layers` measures on the code of transformers.
- `compare_logits` computes the logits of a row of up to 64 tokens from the files, with our model
  and with transformers. The root mean square of the difference is compared with the rounding of
  float32, which is measured: transformers computes the row in float32 and in float64, so errors of
  the conversion do not affect it. Another order of pairs or another epsilon differ by more than a
  thousand times that; 32 times is allowed. Where transformers is not installed, or the model is too
  large, the folder is read as an import reads it, and our own forward pass must give the run's
  logits.
"""

import dataclasses
import functools
import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from experiment.checkpoint import put
from interop.architectures import FEATURES, SIZES, windows_by_layer
from interop.hf_config import parse_config
from interop.layers import PublishedModel, imported_layers
from interop.tensors import Tensors
from interop.transformers_model import TransformersModel, has_transformers
from interop.weights import Entry, make_entries
from model import rotary, transformer
from model.config import ModelConfig
from model.positions import cos_sin
from model.transformer import Block, Params
from utils.limits import read_bytes, read_json

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
# Fields of a model that change its logits. Windows and rotation are compared separately.
_FIELDS = (*SIZES, "kv_heads", "mla", *FEATURES)


class Comparison(NamedTuple):
    """The comparison of one row; differences are root mean squares over all its logits.

    Attributes:
      num_tokens: tokens of the row.
      difference: between the logits of the folder and of the run.
      rounding: between transformers' float32 and float64; 0 without transformers.
      tolerance: largest difference allowed.
      spread: standard deviation of the logits.
    """

    num_tokens: int
    difference: float
    rounding: float
    tolerance: float
    spread: float


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


def fits_in_memory(config: ModelConfig) -> bool:
    """Return True if a model is small enough to be compared with transformers."""
    return 4 * transformer.count_params(config)["total"] <= _MAX_BYTES


def check_config(
    hf_config: Mapping[str, Any],
    config: ModelConfig,
    context: int,
    names: tuple[str, str] = ("config.json", "the run"),
) -> None:
    """Raise ValueError if a config.json does not describe `config`, naming what differs.

    Args:
      hf_config: content of the config.json.
      config: the model that it should describe.
      context: trained context, tokens.
      names: names of the two in the message.
    """
    described = parse_config(hf_config, "the folder", context).model
    pairs = {name: (getattr(described, name), getattr(config, name)) for name in _FIELDS}
    if windows_by_layer(described) != windows_by_layer(config):
        pairs["window"] = described.window, config.window
    rotations = (_rotation(described, context), _rotation(config, context))
    if not all(np.allclose(*pair, rtol=1e-12, atol=1e-25) for pair in zip(*rotations, strict=True)):
        pairs["rotary"] = rotary.label(described.rotary), rotary.label(config.rotary)
    for name, (first, second) in pairs.items():
        if first != second or name == "rotary":
            raise ValueError(f"{names[0]} has {name}={first}, and {names[1]} has {second}")


def _rotation(config: ModelConfig, context: int) -> list[np.ndarray]:
    """Return the frequencies and the scales of all pairs of each head, `[L, K, R]`."""
    table = config.position_table(context)
    rotates = table.inv_freq != 0
    scale = np.where(rotates, table.logit_scale[..., None], table.unrotated_logit_scale[..., None])
    query_scales = (table.query_floor[..., None], table.query_slope[..., None])
    shape = (config.num_layers, config.kv_heads, table.inv_freq.shape[-1])
    return [np.broadcast_to(x, shape) for x in (table.inv_freq, scale, *query_scales)]


def digest_files(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of the files of an export that are neither config.json nor tensors."""
    names = [path.name for path in sorted(folder.iterdir())]
    others = ("config.json", "model", ".")  # compared by value, by tensor, and files of locks
    return {name: _digest_file(folder / name) for name in names if not name.startswith(others)}


def _digest_file(path: Path) -> str:
    return hashlib.sha256(read_bytes(path)).hexdigest() if path.is_file() else ""


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


def compare_logits(model: FolderModel) -> Comparison:
    """Compare the logits of a folder with those of its run.

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
    rounding = 0.0
    if fits_in_memory(model.config) and has_transformers():
        theirs = TransformersModel(model.tensors.folder)
        check_layers(theirs.measure(model.context), imported_layers(model.hf_config))
        expected_TV = theirs.logits(tokens_T, positions_T)[:-1]
        theirs.model.double()
        rounding = _rms(theirs.logits(tokens_T, positions_T)[:-1], expected_TV)
    else:
        source = parse_config(model.hf_config, "the folder", model.context)
        entries = make_entries(source.model, source.layout, source.architecture.fused)
        back = model._replace(config=source.model, entries=entries)
        expected_TV = compute_our_logits(back, tokens_T, positions_T)[:-1]
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
    """Return the logits of our model, float32 `[T, V]`, with one layer on the device at a time."""
    config = dataclasses.replace(
        model.config, compute_dtype="float32", remat="none", attention="xla"
    )
    table, positions_BT = config.position_table(model.context), jnp.asarray(positions_T)[None]
    leaves = _read_leaves(model, None)
    with jax.default_matmul_precision("highest"):
        x_BTD = jnp.asarray(leaves["embedding"][np.asarray(tokens_T)])[None]
        x_BTD = transformer.scale_embedding(config, x_BTD)
        for layer in range(config.num_layers):
            row = jax.tree.map(lambda leaf, layer=layer: leaf[layer], table)
            params: Params = {}
            for name, leaf in _read_leaves(model, layer).items():
                put(params, name.removeprefix("blocks."), leaf)
            x_BTD = _apply_layer(config, params, row, x_BTD, positions_BT)
        norm = {x.removeprefix("final_norm."): leaves[x] for x in leaves if "final_norm." in x}
        x_BTD = transformer.normalize(config, norm, x_BTD)
        output = jnp.asarray(leaves["embedding" if config.tie_embeddings else "output"])
        return np.asarray(transformer.logits(output, x_BTD)[0])


def _read_leaves(model: FolderModel, layer: int | None) -> dict[str, np.ndarray]:
    """Return our float32 arrays of one layer, or those outside of blocks, by name."""
    leaves = {}
    for entry in model.entries:
        if entry.is_stacked == (layer is not None):
            arrays = entry.from_hf(model.tensors.read(entry.hf_name.format(layer=layer)))
            leaves |= zip(entry.ours, arrays, strict=True)
    return {name: np.asarray(array, np.float32) for name, array in leaves.items()}


@functools.partial(jax.jit, static_argnums=0)
def _apply_layer(config: ModelConfig, params: Params, row, x_BTD, positions_BT) -> jax.Array:
    graph, state = nnx.split(nnx.eval_shape(lambda: Block(config, rngs=nnx.Rngs(params=0))))
    nnx.replace_by_pure_dict(state, params)
    rotation = cos_sin(row.cycles_hi, row.cycles_lo, positions_BT)
    block = nnx.merge(graph, state)
    return block(x_BTD, row, rotation, positions_BT, jnp.ones_like(positions_BT))
