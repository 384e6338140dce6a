"""Whether a folder's logits are the run's: what an export is accepted by.

Keys and shapes prove little: a base that was lost, or pairs in another order, pass them. So the
files as they were written are read by transformers, or by its functions restated in numpy
(`interop.reference`), and logits are compared at a short row, at the trained context and at four
times that: an error of a frequency grows with length.
"""

import dataclasses
import functools
import importlib.util
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from interop import reference, rotary_config
from interop.rotary_config import Head
from interop.tensors import Tensors
from interop.weights import Entry
from model import transformer
from model.config import ModelConfig
from model.positions import cos_sin, position_table
from model.transformer import Block, Params

TOLERANCE = 1e-4  # of logits, times their spread where that is above 1
_MOST_TOKENS = 1024  # of a row: of longer contexts some positions are taken
_WHOLE_BYTES = 2**32  # of float32 parameters: more are compared a layer at a time


class Compared(NamedTuple):
    """What one row showed.

    Attributes:
      length: of the context, tokens.
      num_tokens: of the row; where they are fewer, they stand at positions all over the context.
      difference: the largest between two logits.
      plain: likewise with transformers' own float32 angles; None where numpy stood in for it.
      spread: standard deviation of the logits.
    """

    length: int
    num_tokens: int
    difference: float
    plain: float | None
    spread: float

    @property
    def passes(self) -> bool:
        """Whether the logits are the same, as far as float32 goes."""
        return self.difference <= TOLERANCE * max(1.0, self.spread)


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
    """

    folder: Path
    hf_config: dict[str, Any]
    config: ModelConfig
    context: int
    entries: Sequence[Entry]
    params: Params | None


def fits_in_memory(config: ModelConfig) -> bool:
    """Whether a model is held whole while it is compared."""
    return 4 * transformer.count_params(config)["total"] <= _WHOLE_BYTES


def has_transformers() -> bool:
    """Whether transformers and torch are installed."""
    return all(importlib.util.find_spec(name) for name in ("transformers", "torch"))


def compare(subject: Subject) -> list[Compared]:
    """Ours beside theirs, at a short row, at the trained context and at four times that."""
    whole = subject.params is not None
    theirs = _transformers(subject) if whole and has_transformers() else _numpy(subject)
    lengths = dict.fromkeys((min(32, subject.context), subject.context, 4 * subject.context))
    rows = {length: spread_positions(length, _MOST_TOKENS if whole else 128) for length in lengths}
    most = max(map(len, rows.values()))
    random, found = np.random.default_rng(0), []
    for length, positions_T in rows.items():
        T = len(positions_T)
        tokens_T = random.integers(0, subject.config.vocab_size, T)
        # Ours are filled up to the longest row, which the rest does not see: one program for all.
        filled = (np.pad(x_T, (0, most - T)) for x_T in (tokens_T, positions_T))
        ours_TV = our_logits(subject, *filled)[:T]
        exact_TV, plain_TV = theirs(tokens_T, positions_T)
        plain = None if plain_TV is None else float(np.abs(plain_TV - ours_TV).max())
        difference = float(np.abs(exact_TV - ours_TV).max())
        spread = float(ours_TV.std())
        # A logit that is no number differs from every other.
        difference = difference if math.isfinite(difference) else math.inf
        found.append(Compared(length, len(positions_T), difference, plain, spread))
    return found


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
                for each in above:
                    inner = inner.setdefault(each, {})
                inner[last] = np.asarray(leaf, np.float32)
        return tree

    @jax.jit
    def one(params, x_BTD, row):
        own = nnx.clone(state)
        nnx.replace_by_pure_dict(own, params)
        rotation = cos_sin(row.cycles_hi, row.cycles_lo, positions_BT)
        block = nnx.merge(graph, own)
        return block(x_BTD, row, rotation, positions_BT, jnp.ones_like(positions_BT))

    embedding = read("embedding")["embedding"]
    x_BTD = jnp.asarray(embedding[np.asarray(tokens_BT)])
    for layer in range(config.num_layers):
        row = jax.tree.map(lambda leaf, layer=layer: leaf[layer], table)
        x_BTD = one(read("", layer), x_BTD, row)
    scale = read("final_norm.scale")["final_norm"]["scale"]
    mean_square = jnp.mean(x_BTD * x_BTD, axis=-1, keepdims=True)
    x_BTD = x_BTD * jax.lax.rsqrt(mean_square + config.norm_epsilon) * scale
    output = embedding if config.tie_embeddings else read("output")["output"]
    return transformer.logits(jnp.asarray(output), x_BTD)


Theirs = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray | None]]


def _numpy(subject: Subject) -> Theirs:
    tensors = Tensors(subject.folder)

    def logits(tokens_T, positions_T):
        return reference.logits(tensors, subject.hf_config, tokens_T, positions_T), None

    return logits


def _transformers(subject: Subject) -> Theirs:
    """Its own class, float32: with exact angles, and as it is."""
    import torch  # pyright: ignore[reportMissingImports]
    from transformers import AutoModelForCausalLM  # pyright: ignore[reportMissingImports]
    from transformers.utils import logging  # pyright: ignore[reportMissingImports]

    logging.disable_progress_bar()  # over a dozen tensors
    model = AutoModelForCausalLM.from_pretrained(
        subject.folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    rotary = model.model.rotary_emb
    own = rotary.forward

    def exact(x, position_ids, layer_type=None):
        """As its own, in float64."""
        rope = rotary_config.of_config(subject.hf_config, layer_type)
        config = subject.config
        head = Head(config.rope_head_dim, subject.context, config.mla is not None)
        length = int(position_ids.max()) + 1
        inv_freq, scales = rotary_config.frequencies(rope, head, length)
        angles = position_ids[..., None].double() * torch.from_numpy(inv_freq)
        angles = torch.cat([angles, angles], dim=-1)
        factor = math.sqrt(scales.rotated / scales.rest)
        cos, sin = own(x, position_ids, *([layer_type] if layer_type else []))
        # Exact angles, and not other ones: its own drift from them, no more.
        drift = 1e-6 * float(angles.max()) + 1e-4
        for theirs, restated in ((cos, angles.cos()), (sin, angles.sin())):
            if not torch.allclose(theirs.double(), factor * restated, atol=factor * drift):
                raise ValueError(
                    "transformers turns pairs by other angles than config.json was written for: "
                    "nothing was written; report it with the run's config.json"
                )
        return (factor * angles.cos()).to(cos.dtype), (factor * angles.sin()).to(sin.dtype)

    def run(tokens_T, positions_T) -> np.ndarray:
        ids, positions = (torch.from_numpy(np.asarray(x))[None] for x in (tokens_T, positions_T))
        # The mask says that it is one document: else it takes a gap in positions for another's.
        mask = torch.ones_like(ids)
        with torch.no_grad():
            out = model(input_ids=ids, position_ids=positions, attention_mask=mask, use_cache=False)
        return out.logits[0].numpy()

    def logits(tokens_T, positions_T):
        rotary.forward = own
        plain_TV = run(tokens_T, positions_T)
        rotary.forward = exact
        return run(tokens_T, positions_T), plain_TV

    return logits
