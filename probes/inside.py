"""Queries and keys before rotation, captured in one forward pass and turned in any way afterwards.

Nothing of size T x S is kept: logits and weights are made for the queries that are asked for.
"""

import dataclasses
import math
import warnings
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from data.config import MAX_CONTEXT
from evals import runner
from evals.cost import size
from experiment.loaded import LoadedRun
from experiment.memory import free_device_memory
from model import transformer
from model.attention import query_scale
from model.config import ModelConfig
from model.positions import PositionTable, cos_sin, position_table, repeat_heads, rotate
from model.rotary import Pattern, RotaryTable
from model.transformer import Activations, Params

# Logits that exist at once where they are made chunk by chunk: 64 MiB in float32.
_CHUNK = 2**24


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Capture:
    """What a model computes on some rows, seen from inside; all in float32.

    Letters as in `model`; L layers, T queries and S keys of a row, R pairs of a head's features.

    Attributes:
      config: of the model.
      context_length: it was trained on, tokens; rows may be longer.
      tokens_BT, positions_BT, segment_ids_BT: int32 numpy, as `transformer.hidden` takes them.
      inside: q, k, v and the residual stream of every layer, on the device.
      hidden_BTD: after the last norm.
      params: of the model.
    """

    config: ModelConfig
    context_length: int
    tokens_BT: np.ndarray
    positions_BT: np.ndarray
    segment_ids_BT: np.ndarray
    inside: Activations
    hidden_BTD: jax.Array
    params: Params

    def table(self, rotary: Pattern | None = None) -> RotaryTable:
        """Frequencies of every layer and head in float64, its own or another variant's."""
        return _with(self.config, rotary).rotary_table(self.context_length, self.length)

    def rotated(self, layer: int, rotary: Pattern | None = None) -> tuple[jax.Array, jax.Array]:
        """Queries `[B, T, N, H]` and keys `[B, S, K, H]` of a layer as attention reads them.

        Their products are its logits: every scale is in the queries.

        Args:
          layer: from 0.
          rotary: a variant to take in place of the model's own; no forward pass is needed.

        Raises:
          ValueError: if there is no such layer, or heads do not fit the variant.
        """
        if not 0 <= layer < self.config.num_layers:
            raise ValueError(f"no layer {layer}: layers are 0 to {self.config.num_layers - 1}")
        config = _with(self.config, rotary)
        table = position_table(config, self.context_length, self.length)
        of_layer = PositionTable(*(leaf[layer] for leaf in table))
        q_BTNH, k_BSKH = self.inside.q_LBTNH[layer], self.inside.k_LBSKH[layer]
        return _rotated(of_layer, q_BTNH, k_BSKH, self.positions_BT)

    def logits(
        self, layer: int, queries: slice = slice(None), rotary: Pattern | None = None
    ) -> jax.Array:
        """Before softmax, `[B, N, T, S]` of some queries; -inf where a query sees nothing.

        Arguments and errors as of `rotated`.
        """
        q_BTNH, k_BSKH = self.rotated(layer, rotary)
        return self._logits(layer, q_BTNH, k_BSKH, queries)

    def weights(
        self, layer: int, queries: slice = slice(None), rotary: Pattern | None = None
    ) -> jax.Array:
        """After softmax, as `logits`."""
        return jax.nn.softmax(self.logits(layer, queries, rotary))

    def chunks(
        self, layer: int, rotary: Pattern | None = None
    ) -> Iterator[tuple[slice, jax.Array]]:
        """All logits of a layer, some queries at a time: which, and theirs."""
        q_BTNH, k_BSKH = self.rotated(layer, rotary)
        B, T, N, _ = q_BTNH.shape
        step = max(1, _CHUNK // (B * N * T))
        for start in range(0, T, step):
            queries = slice(start, min(start + step, T))
            yield queries, self._logits(layer, q_BTNH, k_BSKH, queries)

    def found(self, layer: int, rotary: Pattern | None = None) -> jax.Array:
        """What each head finds, before it goes back into the residual stream: `[B, T, N, U]`."""
        v_BSKU = self.inside.v_LBSKU[layer]
        v_BSNU = jnp.repeat(v_BSKU, self.config.num_heads // v_BSKU.shape[2], axis=2)
        return jnp.concatenate(
            [
                jnp.einsum(
                    "BNTS,BSNU->BTNU", jax.nn.softmax(logits_BNTS), v_BSNU, precision="highest"
                )
                for _, logits_BNTS in self.chunks(layer, rotary)
            ],
            axis=1,
        )

    def _logits(self, layer: int, q_BTNH, k_BSKH, queries: slice) -> jax.Array:
        chosen_T = np.arange(self.length)[queries]
        sees_BTS = self._sees(layer, chosen_T)
        return _masked_logits(q_BTNH[:, queries], k_BSKH, sees_BTS)

    def sees(self, layer: int, distances: np.ndarray) -> np.ndarray:
        """Whether a query of the layer sees keys so many tokens before it; bool, as `distances`."""
        window = position_table(self.config, self.context_length).window[layer]
        sees = (distances >= 0) & (distances < window)
        if self.config.masked_distances is not None:
            low, high = self.config.masked_distances
            sees &= (distances < low) | (distances > high)
        return sees

    def _sees(self, layer: int, queries_T: np.ndarray) -> np.ndarray:
        """Which keys these queries see, `[B, T, S]`."""
        sees_TS = self.sees(layer, queries_T[:, None] - np.arange(self.length))
        segments_BS = self.segment_ids_BT
        return sees_TS & (segments_BS[:, queries_T, None] == segments_BS[:, None])

    @property
    def length(self) -> int:
        """T, tokens of a row."""
        return self.tokens_BT.shape[1]

    def __repr__(self) -> str:
        B, T = self.tokens_BT.shape
        model = self.config
        return f"{B} rows of {T} tokens, {model.num_layers} layers of {model.num_heads} heads"


def check_capture(run: LoadedRun, documents: int, length: int) -> None:
    """Reject a capture that does not fit the memory, before documents are generated.

    Raises:
      ValueError: it names the largest number of documents that fits.
    """
    if length > MAX_CONTEXT:
        raise ValueError(f"length must be at most {MAX_CONTEXT} tokens, got {length}")
    free, each = free_device_memory(), bytes_per_document(run.config.model, length)
    if free is not None and documents * each > free:
        raise ValueError(
            f"{documents} documents of {length} tokens do not fit: their queries, keys and values "
            f"need {size(documents * each)} and {size(free)} are free; at this length "
            f"{free // each} documents fit"
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
    """One forward pass of a trained model over some rows, with what is inside.

    Args:
      run: as `experiment.load` gives it.
      tokens: a text, which makes one row with BOS in front, or ids `[B, T]`.
      positions_BT: int32, place of each token within its document; default: each row is one.
      segment_ids_BT: int32, document of each token; default: each row is one.

    Raises:
      ValueError: if `tokens` are no ids of this model.

    Warns where rows are longer than those the model was trained on.
    """
    tokens_BT = run.as_tokens(tokens)
    context_length = run.config.data.context_length
    if tokens_BT.shape[1] > context_length:
        warnings.warn(
            f"{tokens_BT.shape[1]} tokens, and the model was trained on rows of {context_length}",
            stacklevel=2,
        )
    if positions_BT is None:
        positions_BT = np.broadcast_to(
            np.arange(tokens_BT.shape[1], dtype=np.int32), tokens_BT.shape
        )
    if segment_ids_BT is None:
        segment_ids_BT = np.ones_like(tokens_BT)
    config = dataclasses.replace(run.config.model, compute_dtype="float32", remat="none")
    table = position_table(config, context_length, tokens_BT.shape[1])
    network = runner.network(config)  # one program for all members of a shape
    # Accelerators multiply float32 in fewer bits unless told otherwise.
    with jax.default_matmul_precision("highest"):
        hidden_BTD, inside = _forward(
            network, run.params, table, tokens_BT, positions_BT, segment_ids_BT
        )
    return Capture(
        config=config,
        context_length=context_length,
        tokens_BT=tokens_BT,
        positions_BT=positions_BT,
        segment_ids_BT=segment_ids_BT,
        inside=inside,
        hidden_BTD=hidden_BTD,
        params=run.params,
    )


_forward = jax.jit(transformer.return_activations, static_argnums=0)


def _with(config: ModelConfig, rotary: Pattern | None) -> ModelConfig:
    return config if rotary is None else dataclasses.replace(config, rotary=rotary)


@jax.jit
def _rotated(table: PositionTable, q_BTNH, k_BSKH, positions_BT) -> tuple[jax.Array, jax.Array]:
    """As the layers do, for pairs in one order, MLA's unrotated ones after the others."""
    cos_BTKR, sin_BTKR = cos_sin(table.cycles_hi, table.cycles_lo, positions_BT)
    R, rotated = q_BTNH.shape[-1] // 2, cos_BTKR.shape[-1]
    rest = [(0, 0)] * 3 + [(0, R - rotated)]
    cos_BTKR, sin_BTKR = jnp.pad(cos_BTKR, rest, constant_values=1), jnp.pad(sin_BTKR, rest)
    own_KR = (table.cycles_hi | table.cycles_lo) != 0
    if rotated < R:  # MLA's: the part that may rotate has the scale of what does
        own_KR = jnp.arange(R) < rotated
    scale_KR = jnp.where(own_KR, table.logit_scale[:, None], table.unrotated_logit_scale[:, None])
    scale_BTKR = query_scale(table, positions_BT)[..., None] * scale_KR / math.sqrt(2 * R)
    scale_BTKH = jnp.tile(scale_BTKR, 2)
    q_BTNH = rotate(q_BTNH, cos_BTKR, sin_BTKR) * repeat_heads(scale_BTKH, q_BTNH.shape[2])
    return q_BTNH, rotate(k_BSKH, cos_BTKR, sin_BTKR)


@jax.jit
def _masked_logits(q_BTNH, k_BSKH, sees_BTS) -> jax.Array:
    k_BSNH = jnp.repeat(k_BSKH, q_BTNH.shape[2] // k_BSKH.shape[2], axis=2)
    logits_BNTS = jnp.einsum("BTNH,BSNH->BNTS", q_BTNH, k_BSNH, precision="highest")
    return jnp.where(sees_BTS[:, None], logits_BNTS, -jnp.inf)
