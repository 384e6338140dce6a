"""Compare a folder with a run: an export is accepted by it, and so is an import.

Keys and shapes prove little: a base that was lost, or pairs in another order, pass them. Each kind
of error is looked for where it shows, at any depth and length:

- `check_config` reads config.json back and compares sizes, windows and norm epsilon for equality,
  and the rotation as float64 frequencies and scales. One part in 10^12 of a base, an epsilon or a
  scale is seen, whatever the weights are.
- `compare` computes logits from the files as they were written, by transformers or by its functions
  restated in numpy (`interop.reference`), at a short row, at the trained context and at four times
  that. At most 256 tokens of a row are taken, at positions from end to end: rotation depends on the
  distances between tokens and not on their number, so that 30 layers at 32,768 tokens cost what
  30 layers at 256 cost. The root mean square of the difference is compared with the rounding of
  float32, which is measured: the same rows are computed in float32 and in float64, by one function,
  so that an error of meaning cannot raise it. In SmolLM2-135M at 32,768 positions a base off by 1%
  differs by 61,000 times the rounding, another pair order by 15,000 times, a temperature off by 1%
  by 16,000 times, and an epsilon of 1e-6 for 1e-5 by 1,600 times; 32 times is allowed.
- Logits do not show a window that is longer than such a row, nor, in a trained model, one that is
  off by a token which hardly weighs. `_check_windows` asks transformers instead which keys the last
  query of a row of window + 2 tokens sees: all keys are made 0, so that each visible one has the
  same weight and each other one exactly 0.
- transformers' cosines and sines decide nothing by themselves, since its float32 angles drift over
  long rows. They are compared with the exact ones: angles up to the drift, and their magnitude,
  which is the temperature, to 1e-5 at any length.
"""

import dataclasses
import functools
import importlib.util
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from sys import stderr
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from experiment.records import parse_json
from interop import reference, rotary_config
from interop.architectures import windows_by_layer
from interop.published import published
from interop.rotary_config import Head
from interop.tensors import Tensors
from interop.weights import Entry
from model import rotary, transformer
from model.config import ModelConfig
from model.positions import cos_sin, position_table
from model.transformer import Block, Params
from utils.messages import one_line

# Differences allowed, in roundings of float32. In a real model rounding is chaotic: up to 5 were
# seen between sound ones (cosines within 1e-6 count too), and over 1,000 for a planted error.
ROUNDINGS = 32
# Bounds of what is allowed, in spreads of the logits. Below the first, cosines that are off by 1e-6
# show; above the second, rounding would hide an error.
_LEAST, _MOST = 2e-6, 1e-3
_MOST_TOKENS = 256  # of a row: of longer contexts some positions are taken
# Fields of a model that change its logits; windows and rotation are compared by themselves.
_DECIDING = ("vocab_size", "embed_dim", "num_layers", "num_heads", "kv_heads", "head_dim")
_DECIDING += ("mlp_dim", "mla", "tie_embeddings", "qk_norm", "qkv_bias", "norm_epsilon")
RECORD = "logit_check.json"  # in an exported folder
_WHOLE_BYTES = 2**32  # of float32 parameters: more are compared a layer at a time


class Compared(NamedTuple):
    """The comparison of one row; differences are root mean squares over all its logits.

    Attributes:
      length: of the context, tokens.
      num_tokens: of the row; where they are fewer, they stand at positions all over the context.
      difference: between the logits of the folder and of the run.
      plain: likewise with transformers' own float32 angles; None where numpy stood in for it.
      rounding: between float32 and float64 in the same functions.
      tolerance: the largest difference that is allowed.
      spread: standard deviation of the logits.
    """

    length: int
    num_tokens: int
    difference: float
    plain: float | None
    rounding: float
    tolerance: float
    spread: float

    @property
    def passes(self) -> bool:
        """True if the logits are the same, as far as float32 goes."""
        return self.difference <= self.tolerance


@dataclasses.dataclass(frozen=True, kw_only=True)
class Subject:
    """A folder and the run that it was made of.

    Attributes:
      folder: with config.json and tensors.
      hf_config: what config.json says.
      config: of the model.
      context: trained context, tokens.
      entries: of the class.
      params: ours, as they were before they were written (rounded alike); None for a model too
        large to be held: ours are then made of the files' tensors, a layer at a time.
      lengths: contexts to compare, tokens; None: `compared_lengths`.
    """

    folder: Path
    hf_config: dict[str, Any]
    config: ModelConfig
    context: int
    entries: Sequence[Entry]
    params: Params | None
    lengths: Sequence[int] | None = None


def fits_in_memory(config: ModelConfig) -> bool:
    """Return True if a model is held whole while it is compared."""
    return 4 * transformer.count_params(config)["total"] <= _WHOLE_BYTES


def has_transformers() -> bool:
    """Return True if transformers and torch are installed."""
    return all(importlib.util.find_spec(name) for name in ("transformers", "torch"))


def compared_lengths(context: int) -> list[int]:
    """Return the contexts at which logits are compared, tokens."""
    return list(dict.fromkeys((min(32, context), context, 4 * context)))


def check_config(hf_config: Mapping[str, Any], config: ModelConfig, context: int) -> None:
    """Refuse a config.json that describes another model; tensors are not looked at.

    Args:
      hf_config: its content.
      config: of the model that it should describe.
      context: trained context, tokens.

    Raises:
      ValueError: naming what differs.
    """
    described = published(hf_config, "the folder", context).model
    for name in _DECIDING:
        theirs, ours = getattr(described, name), getattr(config, name)
        if theirs != ours:
            raise ValueError(f"config.json describes {name}={theirs}, and the run has {ours}")
    if windows_by_layer(described) != windows_by_layer(config):
        raise ValueError(
            f"config.json describes window={described.window}, and the run has {config.window}"
        )
    theirs, ours = (_rotation(model, context) for model in (described, config))
    if not all(
        np.allclose(*pair, rtol=1e-12, atol=1e-25) for pair in zip(theirs, ours, strict=True)
    ):
        raise ValueError(
            f"config.json describes the rotation {rotary.label(described.rotary)}, and the run has "
            f"{rotary.label(config.rotary)}"
        )


def check_record(folder: Path, config: ModelConfig, context: int, tensors_digest: str) -> None:
    """Refuse a folder that is not what its `logit_check.json`, if it has one, was written for.

    Args:
      folder: of an export.
      config, context: as config.json describes the model.
      tensors_digest: as `interop.tensors.digest` gives it.

    Raises:
      ValueError: if config.json or a tensor has been changed since, or the file is damaged.
    """
    path = folder / RECORD
    if not path.exists():
        return
    advice = f"fetch the folder again, or delete {RECORD} to import what is there"
    try:
        record = parse_json(path.read_bytes())
        if "tensors" not in record:
            print(f"{path} has no digests: written by an older version, not checked", file=stderr)
            return
        expected, written = record["tensors"], dict(record["config"])
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(f"{path} is damaged; {advice}") from error
    if expected != tensors_digest:
        raise ValueError(f"{folder}: a tensor is not what {RECORD} was written for; {advice}")
    try:
        check_config(written, config, context)
    except ValueError as error:
        # The record is the reference here: it takes the folder's place in the message.
        text = str(error).replace("config.json describes", f"{RECORD} records")
        raise ValueError(
            f"{folder}: {text.replace('the run has', 'config.json describes')}; {advice}"
        ) from error


def _rotation(config: ModelConfig, context: int) -> list[np.ndarray]:
    """Return the frequencies, and what multiplies the logits, of each head's pairs `[L, N, R]`."""
    table = config.rotary_table(context)
    turns = table.inv_freq != 0
    scale = np.where(turns, table.logit_scale[..., None], table.unrotated_logit_scale[..., None])
    query_scales = (table.query_floor[..., None], table.query_slope[..., None])
    shape = (config.num_layers, config.kv_heads, table.inv_freq.shape[-1])
    return [np.broadcast_to(x, shape) for x in (table.inv_freq, scale, *query_scales)]


def compare(subject: Subject) -> list[Compared]:
    """Return the comparison of each length, or refuse what a comparison of logits need not show.

    Raises:
      ValueError: if config.json describes another model than the run's, or transformers reads
        other angles or windows out of the folder.
    """
    check_config(subject.hf_config, subject.config, subject.context)
    fits = subject.params is not None
    tensors = Tensors(subject.folder)
    transformers = _Transformers(subject) if fits and has_transformers() else None
    if transformers:
        transformers.check_windows()
    lengths = subject.lengths or compared_lengths(subject.context)
    rows = {length: spread_positions(length, _MOST_TOKENS if fits else 128) for length in lengths}
    longest = max(map(len, rows.values()))
    random, compared = np.random.default_rng(0), []
    for length, positions_T in rows.items():
        T = len(positions_T)
        tokens_T = random.integers(0, subject.config.vocab_size, T)
        # Ours are filled up to the longest row, which the rest does not see: one program for all.
        filled = (np.pad(x_T, (0, longest - T)) for x_T in (tokens_T, positions_T))
        ours_TV = our_logits(subject, *filled)[:T]
        plain, theirs_TV = None, None
        if transformers:  # first: other angles are refused here
            theirs_TV = transformers.logits(tokens_T, positions_T, exact=True)
            plain = _rms(transformers.logits(tokens_T, positions_T), ours_TV)
        single_TV, double_TV = (
            reference.logits(tensors, subject.hf_config, tokens_T, positions_T, dtype)
            for dtype in (np.float32, np.float64)
        )
        rounding, spread = _rms(single_TV, double_TV), float(double_TV.std())
        difference = _rms(double_TV if theirs_TV is None else theirs_TV, ours_TV)
        tolerance = min(max(ROUNDINGS * rounding, _LEAST * spread), _MOST * spread)
        compared.append(Compared(length, T, difference, plain, rounding, tolerance, spread))
    return compared


def refuse_different(compared: Sequence[Compared], subject: str) -> None:
    """Raise ValueError if a comparison failed: `subject` names what differs from the run."""
    worst = max(compared, key=lambda row: row.difference / (row.tolerance or 1e-30))
    if not worst.passes:
        raise ValueError(
            f"at {worst.length} tokens {subject} differ from the run's by {worst.difference:.2g} "
            f"(root mean square), more than {worst.tolerance:.2g}, which is allowed for a spread "
            f"of {worst.spread:.2g} and a rounding of {worst.rounding:.2g}: nothing was written; "
            "report it with the config.json"
        )


def _rms(a_TV: np.ndarray, b_TV: np.ndarray) -> float:
    """Root mean square of the difference; infinite where a logit is not finite."""
    difference = math.sqrt(np.mean(np.square(a_TV - b_TV, dtype=np.float64)))
    return difference if math.isfinite(difference) else math.inf


def spread_positions(length: int, most: int) -> np.ndarray:
    """All positions below `length`, or `most` of them: the first, the last, and some between."""
    if length <= most:
        return np.arange(length)
    edge = most // 4
    between = np.linspace(edge, length - edge, most - 2 * edge, endpoint=False).astype(int)
    return np.concatenate([np.arange(edge), between, np.arange(length - edge, length)])


def our_logits(subject: Subject, tokens_T, positions_T) -> np.ndarray:
    """Float32 `[T, V]` of this repository's model."""
    config = dataclasses.replace(
        subject.config, compute_dtype="float32", remat="none", attention="xla"
    )
    inputs = jnp.asarray(tokens_T)[None], jnp.asarray(positions_T)[None]
    with jax.default_matmul_precision("highest"):
        if subject.params is not None:
            return np.asarray(_whole(config, subject.context, subject.params, *inputs))[0]
        return np.asarray(_by_layers(subject, config, *inputs)[0])


@functools.partial(jax.jit, static_argnums=(0, 1))
def _whole(config: ModelConfig, context: int, params: Params, tokens_BT, positions_BT) -> jax.Array:
    ones_BT, table = jnp.ones_like(tokens_BT), position_table(config, context)
    hidden_BTD = transformer.hidden(config, params, table, tokens_BT, positions_BT, ones_BT)
    return transformer.unembed(config, params, hidden_BTD)


def _by_layers(subject: Subject, config: ModelConfig, tokens_BT, positions_BT) -> jax.Array:
    """The same, with one layer's parameters in memory."""
    tensors = Tensors(subject.folder)
    table = position_table(config, subject.context)
    graph, state = nnx.split(nnx.eval_shape(lambda: Block(config, rngs=nnx.Rngs(params=0))))

    def read(name: str, layer: int | None = None) -> Params:
        """Leaves of blocks, or one beside them."""
        tree: Params = {}
        for entry in subject.entries:
            if entry.is_stacked != (layer is not None) or (
                layer is None and name not in entry.ours
            ):
                continue
            parts = entry.from_hf(tensors.read(entry.theirs.format(layer=layer)))
            for path, leaf in zip(entry.ours, parts, strict=True):
                *above, last = path.split(".")[entry.is_stacked :]
                inner = tree
                for key in above:
                    inner = inner.setdefault(key, {})
                inner[last] = np.asarray(leaf, np.float32)
        return tree

    @jax.jit
    def apply_layer(params, x_BTD, row):
        layer_state = nnx.clone(state)
        nnx.replace_by_pure_dict(layer_state, params)
        rotation = cos_sin(row.cycles_hi, row.cycles_lo, positions_BT)
        block = nnx.merge(graph, layer_state)
        return block(x_BTD, row, rotation, positions_BT, jnp.ones_like(positions_BT))

    embedding = read("embedding")["embedding"]
    x_BTD = jnp.asarray(embedding[np.asarray(tokens_BT)])
    for layer in range(config.num_layers):
        row = jax.tree.map(lambda leaf, layer=layer: leaf[layer], table)
        x_BTD = apply_layer(read("", layer), x_BTD, row)
    scale = read("final_norm.scale")["final_norm"]["scale"]
    mean_square = jnp.mean(x_BTD * x_BTD, axis=-1, keepdims=True)
    x_BTD = x_BTD * jax.lax.rsqrt(mean_square + config.norm_epsilon) * scale
    output = embedding if config.tie_embeddings else read("output")["output"]
    return transformer.logits(jnp.asarray(output), x_BTD)


class _Transformers:
    """The folder's model as transformers opens it, in float32.

    Raises:
      ValueError: if transformers does not open the folder.
    """

    def __init__(self, subject: Subject):
        from transformers import AutoModelForCausalLM  # pyright: ignore[reportMissingImports]
        from transformers.utils import logging  # pyright: ignore[reportMissingImports]

        logging.disable_progress_bar()  # over a dozen tensors
        self.subject = subject
        try:
            self.model = AutoModelForCausalLM.from_pretrained(
                subject.folder,
                dtype="float32",
                attn_implementation="eager",
                trust_remote_code=False,
                use_safetensors=True,
            ).eval()
        except Exception as error:  # any, of a library that reads a stranger's folder
            raise ValueError(
                f"transformers does not open {subject.folder} ({one_line(str(error), 200)})"
            ) from error
        self._plain = self.model.model.rotary_emb.forward

    def logits(self, tokens_T, positions_T, exact: bool = False) -> np.ndarray:
        """Return the logits `[T, V]` of one row, with its own angles or with exact ones."""
        import torch  # pyright: ignore[reportMissingImports]

        self.model.model.rotary_emb.forward = self._exact if exact else self._plain
        ids, positions = (torch.from_numpy(np.asarray(x))[None] for x in (tokens_T, positions_T))
        # The mask says that it is one document: else it takes a gap in positions for another's.
        mask = torch.ones_like(ids)
        try:
            with torch.no_grad():
                out = self.model(
                    input_ids=ids, position_ids=positions, attention_mask=mask, use_cache=False
                )
        except (RuntimeError, IndexError, TypeError) as error:  # sizes that do not fit, say
            raise ValueError(
                f"transformers does not run {self.subject.folder} ({one_line(str(error), 200)})"
            ) from error
        return out.logits[0].numpy()

    def _exact(self, x, position_ids, layer_type=None):
        """Return cosines and sines of float64 angles, if its own are those but for drift."""
        import torch  # pyright: ignore[reportMissingImports]

        subject = self.subject
        rope = rotary_config.of_config(subject.hf_config, layer_type)
        config = subject.config
        head = Head(config.rope_head_dim, subject.context, config.mla is not None)
        length = int(position_ids.max()) + 1
        inv_freq, scales = rotary_config.frequencies(rope, head, length)
        angles = position_ids[..., None].double() * torch.from_numpy(inv_freq)
        factor = math.sqrt(scales.rotated / scales.rest)
        theirs = self._plain(x, position_ids, *([layer_type] if layer_type else []))
        is_complex = isinstance(theirs, torch.Tensor)  # DeepSeek-V2's: cos + i sin, once a pair
        if is_complex:
            theirs = theirs.real, theirs.imag
        else:
            angles = torch.cat([angles, angles], dim=-1)
        cos, sin = (part.double() for part in theirs)
        exact = factor * angles.cos(), factor * angles.sin()
        drift = factor * (1e-6 * float(angles.max()) + 1e-4)
        alike = cos.shape == exact[0].shape and (
            torch.allclose(cos, exact[0], atol=drift)
            and torch.allclose(sin, exact[1], atol=drift)
            # Free of drift, and so a temperature shows at any length.
            and torch.allclose(torch.hypot(cos, sin), torch.tensor(factor).double(), rtol=1e-5)
        )
        if not alike:
            raise ValueError(
                "transformers turns pairs by other angles, or with another temperature, than the "
                f"run does at {length:,} tokens; nothing was written"
            )
        exact = tuple(part.to(theirs[0].dtype) for part in exact)
        return torch.complex(*exact) if is_complex else exact

    def check_windows(self) -> None:
        """Refuse a window that is not the run's in some layer, be it by one token.

        A query at index window + 1 is asked for its attention weights over keys that are all 0:
        they are equal on every key that it sees and exactly 0 on the others.
        """
        import torch  # pyright: ignore[reportMissingImports]
        from transformers import DynamicCache  # pyright: ignore[reportMissingImports]
        from transformers.cache_utils import DynamicLayer  # pyright: ignore[reportMissingImports]

        config = self.subject.config
        windows = windows_by_layer(config)
        sizes = {window for window in windows if window is not None}
        if not sizes:
            return
        length = max(sizes) + 2
        zeros = torch.zeros(1, config.kv_heads, 1, config.head_dim)

        class Zeros(DynamicLayer):
            """A cache of zeros, which are not stored."""

            def __init__(self):
                super().__init__()
                self.is_initialized = True
                self.keys = self.values = zeros.expand(-1, -1, length - 1, -1)

            def update(self, key_states, value_states, *args, **kwargs):
                keys = zeros.expand(-1, -1, length, -1)
                return keys, keys

        cache = DynamicCache()
        cache.layers.extend(Zeros() for _ in windows)
        with torch.no_grad():
            out = self.model(
                input_ids=torch.zeros(1, 1, dtype=torch.long),
                position_ids=torch.tensor([[length - 1]]),
                past_key_values=cache,
                output_attentions=True,
            )
        for layer, (window, weights) in enumerate(zip(windows, out.attentions, strict=True)):
            sees = weights[0, 0, -1].numpy() > 0
            expected = np.arange(length) >= length - (window or length)
            if not np.array_equal(sees, expected):
                raise ValueError(
                    f"in layer {layer} transformers shows a query {sees.sum()} tokens, and the "
                    f"run's window is {window}; nothing was written"
                )
