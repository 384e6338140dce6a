"""Compare a Hugging Face folder with a run. Exports and imports are accepted only if they agree.

Names and shapes of tensors prove little: a wrong base or another order of pairs has the same ones.
Each kind of error is tested where it is visible, at any depth and length:

- `check_config` parses config.json. It compares sizes, windows and norm epsilon for equality, and
  the rotation as float64 frequencies and scales, to 1e-12.
- `compare_logits` computes logits from the files, with our model and with transformers, at a short
  row, at the trained context and at four times that. A row has at most 256 tokens, at positions
  spread over the whole context: rotation depends on the distance between tokens and not on their
  number, so 30 layers at 32,768 tokens cost as much as at 256. The root mean square of the
  difference is compared with the rounding of float32, which is measured: transformers computes the
  same rows in float32 and in float64, so errors of the conversion do not affect it. In SmolLM2-135M
  at 32,768 positions, a base off by 1% differs by 61,000 times the rounding, another order of pairs
  by 15,000 times, a temperature off by 1% by 16,000 times, and an epsilon of 1e-6 for 1e-5 by 1,600
  times; 32 times is allowed. Where transformers is not installed, or the model is too large, the
  folder is read as an import reads it, and our own forward pass must give the run's logits.
- Logits do not show a window longer than such a row. In a trained model they hardly show one that
  is off by one token. `TransformersModel.check_windows` tests every layer's window instead.
- transformers computes angles in float32, which drift over long rows, so logits are computed with
  exact angles. transformers' cosines and sines are compared with the exact ones: angles up to the
  drift, and their magnitude, which is the temperature, to 1e-5.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from experiment.streamed import put
from interop.architectures import FEATURES, SIZES, windows_by_layer
from interop.hf_config import parse_config
from interop.tensors import Tensors
from interop.transformers_model import TransformersModel, has_transformers
from interop.weights import Entry, make_entries
from model import rotary, transformer
from model.config import ModelConfig
from model.positions import cos_sin
from model.transformer import Block, Params
from utils.limits import read_json

# Largest difference, in roundings of float32. Rounding is chaotic in a real model: correct exports
# differ by up to 5 (cosines within 1e-6 count too), planted errors by more than 1,000.
ROUNDINGS = 32
# Bounds of the tolerance, relative to the spread of the logits. Below the first, cosines that are
# off by 1e-6 would fail; above the second, rounding could hide an error.
_MIN_TOLERANCE, _MAX_TOLERANCE = 2e-6, 1e-3
RECORD = "logit_check.json"  # in an exported folder
_MAX_BYTES = 2**32  # float32 parameters of models that are compared with transformers
# Fields of a model that change its logits. Windows and rotation are compared separately.
_FIELDS = (*SIZES, "kv_heads", "mla", *FEATURES)


Row = tuple[np.ndarray, np.ndarray]  # token ids and positions, `[T]` each


class Comparison(NamedTuple):
    """The comparison of one row; differences are root mean squares over all its logits.

    Attributes:
      length: context, tokens.
      num_tokens: tokens of the row. If they are fewer, their positions are spread over the context.
      difference: between the logits of the folder and of the run.
      plain: the same with transformers' own float32 angles; None without transformers.
      rounding: between transformers' float32 and float64; 0 without transformers.
      tolerance: largest difference allowed.
      spread: standard deviation of the logits.
    """

    length: int
    num_tokens: int
    difference: float
    plain: float | None
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


def compared_lengths(context: int) -> list[int]:
    """Return the contexts at which logits are compared, tokens."""
    return list(dict.fromkeys((min(32, context), context, 4 * context)))


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


def check_record(folder: Path, config: ModelConfig, context: int, digest: str) -> None:
    """Raise ValueError if a folder has changed since its `logit_check.json`, if any, was written.

    Args:
      folder: a Hugging Face folder.
      config: the model that its config.json describes.
      context: trained context, tokens.
      digest: digest of its tensors, from `interop.tensors.digest_tensors`.
    """
    path = folder / RECORD
    if not path.exists():
        return
    advice = f"download the folder again, or delete {RECORD} to import it as it is"
    try:
        record = read_json(path)
        expected, written = record["tensors"], dict(record["config"])
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(f"{path} is damaged; {advice}") from error
    if expected != digest:
        raise ValueError(f"{folder}: tensors have changed since {RECORD} was written; {advice}")
    try:
        check_config(written, config, context, (RECORD, "config.json"))
    except ValueError as error:
        raise ValueError(f"{folder}: {error}; {advice}") from error


def compare_logits(model: FolderModel, lengths: Sequence[int] | None = None) -> list[Comparison]:
    """Compare the logits of a folder and of its run at each length.

    Args:
      model: the folder and the run.
      lengths: contexts, tokens; None: `compared_lengths`.

    Raises:
      ValueError: if config.json does not describe the run's model, or transformers reads other
        angles or windows from the folder.
    """
    check_config(model.hf_config, model.config, model.context)
    fits = fits_in_memory(model.config)
    lengths = lengths or compared_lengths(model.context)
    random, rows = np.random.default_rng(0), []
    for length in lengths:
        positions_T = spread_positions(length, 256 if fits else 128)
        tokens_T = random.integers(0, model.config.vocab_size, len(positions_T))
        rows.append((tokens_T, positions_T))
    ours = _our_logits(model, rows)
    if fits and has_transformers():
        references = _compute_with_transformers(model, rows, ours)
    else:
        references = _read_back(model, rows)
    comparisons = []
    for length, ours_TV, reference in zip(lengths, ours, references, strict=True):
        spread = float(reference.logits_TV.std())
        difference = _rms(reference.logits_TV, ours_TV)
        tolerance = max(ROUNDINGS * reference.rounding, _MIN_TOLERANCE * spread)
        tolerance = min(tolerance, _MAX_TOLERANCE * spread)
        comparisons.append(
            Comparison(
                length,
                len(ours_TV),
                difference,
                reference.plain,
                reference.rounding,
                tolerance,
                spread,
            )
        )
    return comparisons


class _Reference(NamedTuple):
    """Expected logits of one row of a folder.

    Attributes:
      logits_TV: in float32, with exact angles.
      plain, rounding: as in `Comparison`.
    """

    logits_TV: np.ndarray
    plain: float | None = None
    rounding: float = 0.0


def _compute_with_transformers(
    model: FolderModel, rows: Sequence[Row], ours: Sequence[np.ndarray]
) -> list[_Reference]:
    """Return the logits of rows as transformers computes them from the folder."""
    theirs = TransformersModel(model.tensors.folder, model.hf_config, model.config)
    theirs.check_windows()
    plain = [_rms(theirs.logits(*row), ours_TV) for row, ours_TV in zip(rows, ours, strict=True)]
    single = [theirs.logits(*row, exact=True) for row in rows]
    theirs.model.double()
    pairs = zip(rows, single, strict=True)
    rounding = [_rms(theirs.logits(*row, exact=True), logits_TV) for row, logits_TV in pairs]
    return list(map(_Reference, single, plain, rounding))


def _read_back(model: FolderModel, rows: Sequence[Row]) -> list[_Reference]:
    """Return the logits of rows by our model, of the folder as an import reads it."""
    source = parse_config(model.hf_config, "the folder", model.context)
    entries = make_entries(source.model, source.layout, source.architecture.fused)
    back = model._replace(config=source.model, entries=entries)
    return list(map(_Reference, _our_logits(back, rows)))


def _our_logits(model: FolderModel, rows: Sequence[Row]) -> list[np.ndarray]:
    """Return the logits of rows by our model, padded to one length: one program is compiled."""
    longest = max(len(tokens_T) for tokens_T, _ in rows)
    return [
        compute_our_logits(model, *(np.pad(x_T, (0, longest - len(x_T))) for x_T in row))[
            : len(row[0])
        ]
        for row in rows
    ]


def check_comparisons(comparisons: Sequence[Comparison], subject: str) -> None:
    """Raise ValueError if the logits of `subject` differ from the run's by too much."""
    worst = max(comparisons, key=lambda row: row.difference / (row.tolerance or 1e-30))
    # Logits that are all equal prove nothing.
    if worst.difference > worst.tolerance or not worst.spread:
        raise ValueError(
            f"at {worst.length} tokens {subject} differ from the run's by {worst.difference:.2g} "
            f"(root mean square; allowed: {worst.tolerance:.2g}, with spread {worst.spread:.2g} "
            f"and rounding {worst.rounding:.2g}); nothing was written. Report this with the "
            "config.json"
        )


def _rms(a_TV: np.ndarray, b_TV: np.ndarray) -> float:
    """Return the root mean square of the difference; infinity if a logit is not finite."""
    difference = math.sqrt(np.mean(np.square(a_TV - b_TV, dtype=np.float64)))
    return difference if math.isfinite(difference) else math.inf


def spread_positions(length: int, count: int) -> np.ndarray:
    """Return all positions below `length`, or `count`: the first, the last and some between."""
    if length <= count:
        return np.arange(length)
    edge = count // 4
    between = np.linspace(edge, length - edge, count - 2 * edge, endpoint=False).astype(int)
    return np.concatenate([np.arange(edge), between, np.arange(length - edge, length)])


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
