"""Capture of queries and keys before rotation, which any rotary variant can rotate afterwards.

Nothing of size T x S is stored: logits and weights are computed for the requested queries.
"""

import dataclasses
import functools
import warnings
from collections.abc import Iterator

import jax
import numpy as np
from numpy.typing import ArrayLike

from ropewalk.data.config import MAX_CONTEXT
from ropewalk.experiment.devices import free_device_memory
from ropewalk.experiment.loaded import LoadedRun
from ropewalk.model import mask, transformer
from ropewalk.model.attention import order_by_pair, rotate_heads, rotate_queries
from ropewalk.model.config import Architecture, ModelConfig, PositionTable
from ropewalk.model.kernels.xla import masked_logits, softmax
from ropewalk.model.positions import cos_sin
from ropewalk.model.rotary import Pattern
from ropewalk.model.transformer import Activations, Params
from ropewalk.theory import capability
from ropewalk.utils.messages import counted, size

# Maximal number of logits of a chunk: 64 MiB in float32.
_CHUNK = 2**24


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Capture:
    """Activations of a model on some rows, in float32.

    Letters as in `model`; L layers, T queries and S keys of a row, R pairs of a head's features.

    Attributes:
      config: the model's.
      context_length: trained context, tokens; rows may be longer.
      tokens_BT, positions_BT, segment_ids_BT: int32 numpy, arguments of `transformer.hidden`.
      activations: q, k, v and the residual stream of every layer, on the device.
      hidden_BTD: hidden states after the last norm.
      params: the model's.
    """

    config: ModelConfig
    context_length: int
    tokens_BT: np.ndarray
    positions_BT: np.ndarray
    segment_ids_BT: np.ndarray
    activations: Activations
    hidden_BTD: jax.Array
    params: Params

    def table(self, rotary: Pattern | None = None) -> PositionTable:
        """Return the float64 frequencies of every layer and head, by default the model's."""
        config = dataclasses.replace(self.config, rotary=rotary or self.config.rotary)
        return config.position_table(self.context_length, self.length)

    @functools.cached_property
    def inv_freq(self) -> np.ndarray:
        """Frequencies of every query head, float64 `[L, N, R]`, radians per token."""
        return capability.query_head_frequencies(self.table().inv_freq, self.config.num_heads)

    def unrotated(self, layer: int) -> tuple[jax.Array, jax.Array]:
        """Return queries `[B, T, N, H]` and keys `[B, S, K, H]` before rotation and scales.

        A pair is the features i and i + H / 2, in the order of `inv_freq`.
        """
        q_BTNH, k_BSKH = self.activations.q_LBTNH[layer], self.activations.k_LBSKH[layer]
        return order_by_pair(self.config, q_BTNH), order_by_pair(self.config, k_BSKH)

    def rotated(self, layer: int, rotary: Pattern | None = None) -> tuple[jax.Array, jax.Array]:
        """Return the queries and keys that attention multiplies, in the order of `unrotated`.

        Their products are the logits: the queries include every scale.

        Args:
          layer: from 0.
          rotary: a variant that replaces the model's; this needs no forward pass.

        Raises:
          ValueError: if there is no such layer, or heads do not fit the variant.
        """
        if not 0 <= layer < self.config.num_layers:
            raise ValueError(f"no layer {layer}: layers are 0 to {self.config.num_layers - 1}")
        table = jax.tree.map(lambda leaf: leaf[layer], self.table(rotary))
        q_BTNH, k_BSKH = self.activations.q_LBTNH[layer], self.activations.k_LBSKH[layer]
        network = self.config.forward_architecture()
        return _rotate(network, table, q_BTNH, k_BSKH, self.positions_BT)

    def logits(
        self, layer: int, queries: slice = slice(None), rotary: Pattern | None = None
    ) -> jax.Array:
        """Return the logits `[B, N, T, S]` of some queries; masked keys have -inf.

        Arguments and errors as of `rotated`.
        """
        q_BTNH, k_BSKH = self.rotated(layer, rotary)
        return self._logits(layer, q_BTNH, k_BSKH, queries)

    def weights(
        self, layer: int, queries: slice = slice(None), rotary: Pattern | None = None
    ) -> jax.Array:
        """Return the attention weights, the softmax of `logits`."""
        return softmax(self.logits(layer, queries, rotary))[0]

    def chunks(self, layer: int) -> Iterator[tuple[np.ndarray, jax.Array, jax.Array]]:
        """Yield a layer in chunks: indices of queries, their logits, and their weights."""
        q_BTNH, k_BSKH = self.rotated(layer)
        B, T, N, _ = q_BTNH.shape
        step = max(1, _CHUNK // (B * N * T))
        for start in range(0, T, step):
            queries = slice(start, start + step)
            logits_BNTS = self._logits(layer, q_BTNH, k_BSKH, queries)
            yield np.arange(T)[queries], logits_BNTS, softmax(logits_BNTS)[0]

    def unembed(self, hidden_BTD: jax.Array) -> jax.Array:
        """Return the next-token logits of hidden states, `[B, T, V]`, as evaluation does."""
        with jax.default_matmul_precision("highest"):
            return transformer.unembed(self.config, self.params, hidden_BTD)

    @functools.cached_property
    def windows(self) -> np.ndarray:
        """Number of tokens that a query of each layer attends to, itself included, int32."""
        return np.asarray(self.config.position_table(self.context_length).window)

    def is_visible(self, distances: np.ndarray, layer: int | slice = slice(None)) -> np.ndarray:
        """Return whether a query of a layer attends to keys at these distances, bool.

        By default that of every layer, `[L, M]`.
        """
        window = self.windows[layer, None]
        return np.asarray(mask.is_visible(distances, window, self.config.masked_distances))

    def _logits(self, layer: int, q_BTNH, k_BSKH, queries: slice) -> jax.Array:
        indices_S, ids_BS = np.arange(self.length), self.segment_ids_BT
        mask_BTS = mask.attention_mask(
            indices_S[queries],
            indices_S,
            ids_BS[:, queries],
            ids_BS,
            self.windows[layer],
            self.config.masked_distances,
        )
        return _masked_logits(q_BTNH[:, queries], k_BSKH, mask_BTS)

    @property
    def length(self) -> int:
        """Number of tokens of a row, T."""
        return self.tokens_BT.shape[1]

    def __repr__(self) -> str:
        B, T = self.tokens_BT.shape
        model = self.config
        rows, layers = counted(B, "rows"), counted(model.num_layers, "layers")
        return f"{rows} of {T} tokens, {layers} of {counted(model.num_heads, 'heads')}"


def check_capture(run: LoadedRun, documents: int, length: int) -> None:
    """Reject a capture that does not fit the memory, before documents are generated.

    Raises:
      ValueError: it names the largest number of documents that fits.
    """
    if length > MAX_CONTEXT:
        raise ValueError(f"length must be at most {MAX_CONTEXT} tokens, got {length}")
    free, size_each = free_device_memory(), bytes_per_document(run.config.model, length)
    if free is not None and documents * size_each > free:
        raise ValueError(
            f"{counted(documents, 'documents')} of {length} tokens: queries, keys and values need "
            f"{size(documents * size_each)} and {size(free)} are free; at this length "
            f"{counted(free // size_each, 'documents')} would fit"
        )


def bytes_per_document(model: ModelConfig, length: int) -> int:
    """Return the size of one document's queries, keys, values and residual streams."""
    width = 2 * (model.num_heads + model.kv_heads) * model.head_dim + model.embed_dim
    return 4 * model.num_layers * width * length


def capture(
    run: LoadedRun,
    tokens: str | np.ndarray,
    *,
    positions_BT: np.ndarray | None = None,
    segment_ids_BT: np.ndarray | None = None,
) -> Capture:
    """Run one forward pass over some rows and capture the activations.

    Args:
      run: the result of `experiment.load`.
      tokens: a text, which becomes one row after BOS, or ids `[B, T]`.
      positions_BT: int32, position of each token within its document; default: each row is one.
      segment_ids_BT: int32, document of each token; default: each row is one.

    Raises:
      ValueError: if `tokens` are no ids of this model.

    Warns if rows are longer than the trained context.
    """
    tokens_BT = run.as_tokens(tokens)
    context_length = run.config.data.context_length
    if (length := tokens_BT.shape[1]) > context_length:
        warnings.warn(
            f"rows of {length} tokens: the model was trained on rows of {context_length}",
            stacklevel=2,
        )
    if positions_BT is None:
        positions_BT = np.broadcast_to(np.arange(length, dtype=np.int32), tokens_BT.shape)
    if segment_ids_BT is None:
        segment_ids_BT = np.ones_like(tokens_BT)
    config = dataclasses.replace(run.config.model, compute_dtype="float32", remat="none")
    table = config.position_table(context_length, length)
    network = config.forward_architecture()  # one program for all members of a shape
    rows = tokens_BT, positions_BT, segment_ids_BT
    # By default, accelerators multiply float32 with fewer bits.
    with jax.default_matmul_precision("highest"):
        hidden_BTD, activations = _forward(network, run.params, table, *rows)
    return Capture(config, context_length, *rows, activations, hidden_BTD, run.params)


def complex_pairs(q_BTNH: ArrayLike, k_BSKH: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Return queries, and the keys of every query head, as complex pairs, `[B, T, N, R]`.

    Rotation adds to their argument, and q conj(k) adds up to the logit.
    """
    q_BTNH, k_BSKH = np.asarray(q_BTNH, np.float64), np.asarray(k_BSKH, np.float64)
    k_BSNH = np.repeat(k_BSKH, q_BTNH.shape[2] // k_BSKH.shape[2], axis=2)
    (q_BTNR, qi_BTNR), (k_BSNR, ki_BSNR) = (np.split(x, 2, axis=-1) for x in (q_BTNH, k_BSNH))
    return q_BTNR + 1j * qi_BTNR, k_BSNR + 1j * ki_BSNR


_forward = jax.jit(transformer.return_activations, static_argnums=0)
_masked_logits = jax.jit(masked_logits)


@functools.partial(jax.jit, static_argnums=0)
def _rotate(
    config: Architecture, table: PositionTable, q_BTNH, k_BSKH, positions_BT
) -> tuple[jax.Array, jax.Array]:
    """Rotate as attention does; return pairs in the order of the table."""
    angles = cos_sin(table.cycles_hi, table.cycles_lo, positions_BT)
    q_BTNH = rotate_queries(config, q_BTNH, table, angles, positions_BT)
    k_BSKH = rotate_heads(config, k_BSKH, angles)
    return order_by_pair(config, q_BTNH), order_by_pair(config, k_BSKH)
