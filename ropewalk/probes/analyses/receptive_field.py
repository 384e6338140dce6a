"""The effect of distant tokens on an answer: gradients, and truncated context.

The receptive field of Chi et al. 2023 (arXiv 2212.10356) at the last question of each document: the
norm of the gradient with respect to each token's embedding. The gradient is that of the answer's
log-odds, ln(p / (1 - p)), which do not saturate if the model is certain; the loss does. It is 0
beyond the sum over layers of (window - 1), plus 1 per layer with key smearing.
"""

import functools
import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ropewalk.evals.estimate.bins import fine_bin_number
from ropewalk.model import transformer
from ropewalk.model.config import NO_WINDOW, ModelConfig, PositionTable
from ropewalk.model.transformer import Params
from ropewalk.probes.inside import Capture
from ropewalk.probes.probe import Number, Probe, draw_band
from ropewalk.probes.resample import bootstrap_mean, quantile_distances
from ropewalk.probes.subject import Subject
from ropewalk.utils.figures import DASHED, INK, handle, token_axis

# Maximal number of attention weights in memory: a quarter of a GiB in float32.
_MAX_WEIGHTS = 2**26
_SHARES = 0.5, 0.9  # of the gradient
_SMALL_KL = 0.1  # nats


class ReceptiveField(Probe):
    """Gradient of an answer by distance, and the divergence caused by a truncated context.

    `_3` are a mean over documents and the ends of its 95% interval.

    Attributes:
      distance_X: tokens, the mean of a bin: an eighth of an octave, or one distance.
      gradient_3X: the gradient's norm with respect to one token of the bin; 1 is the mean over all
        tokens up to the question.
      within_3P: distance in tokens within which .5 and .9 of the gradient lie.
      context_K: tokens, including the query's, to which a document is truncated.
      kl_3K: nats, from the prediction with the full document to the truncated one.
      limit: tokens; the windows let no gradient through beyond it. inf without windows.
    """

    title = "Gradient by distance"
    caption = """
    At the last question of each document. Above: norm of the gradient with respect to a token at
    each distance; 1 is the mean over all tokens. Dashed, if all layers have windows: the farthest
    token that these let through. Below: change of the prediction (Kullback-Leibler divergence) when
    the document is truncated to its last tokens. Bands are 95% intervals over documents; one line
    per seed."""
    y_labels = "gradient (mean = 1)", "KL divergence (nats)"
    x_label = "distance; tokens of context (log scale)"
    sharey = "row"
    draws_all_seeds = True

    @classmethod
    def measure(cls, subject: Subject) -> "ReceptiveField":
        """Measure the effect of each token on the last question of each row."""
        inside, questions = subject.capture, subject.questions
        last = np.flatnonzero(np.diff(questions.row_Q, append=-1))  # of each row
        row_B, query_B, key_B = (x[last] for x in questions[:3])
        tokens_BT, answer_B = inside.tokens_BT[row_B], inside.tokens_BT[row_B, key_B]
        norm_BT = _in_chunks(inside, _gradients, tokens_BT, query_B, answer_B)
        norm_BM, exists_BM = _by_distance(norm_BT, query_B)
        share_BM = norm_BM / norm_BM.sum(axis=1, keepdims=True)
        # Bins of all distances from 1 on; at distance 0 is the query itself.
        distances_M = np.arange(1, query_B.max() + 1)
        starts_X = np.flatnonzero(np.diff(fine_bin_number(distances_M), prepend=-1))
        gradient_BM = share_BM * (query_B + 1)[:, None]
        gradient_BX, count_BX = (
            np.add.reduceat(x_BM[:, distances_M], starts_X, axis=1)
            for x_BM in (gradient_BM, exists_BM)
        )
        sizes_X = np.diff(np.append(starts_X, len(distances_M)))
        context_K = np.unique((2 ** np.arange(0, math.log2(inside.length) + 0.5, 0.5)).astype(int))
        context_K = np.append(context_K[context_K < inside.length], inside.length)
        log_p_KBV = [
            _in_chunks(inside, _log_probs, *_truncate(tokens_BT, query_B, context), query_B)
            for context in context_K
        ]
        full_BV = log_p_KBV[-1]
        kl_KB = [(np.exp(full_BV) * (full_BV - p_BV)).sum(axis=1) for p_BV in log_p_KBV]
        window_L = inside.windows.astype(np.int64)
        limit = float((window_L - 1 + inside.config.shift_keys).sum())
        return cls(
            distance_X=np.add.reduceat(distances_M, starts_X) / sizes_X,
            gradient_3X=bootstrap_mean(gradient_BX, count_BX),
            within_3P=quantile_distances(share_BM, _SHARES),
            context_K=context_K,
            kl_3K=bootstrap_mean(np.transpose(kl_KB)),
            limit=math.inf if (window_L == NO_WINDOW).any() else limit,
        )

    @property
    def sufficient_context(self) -> float:
        """Shortest tested context from which on the prediction changes by less than 0.1 nats."""
        # The divergence may rise again with more context; with the full document it is 0.
        is_small_K = np.minimum.accumulate((self.kl_3K[0] < _SMALL_KL)[::-1])[::-1]
        return float(self.context_K[is_small_K.argmax()])

    def numbers(self) -> dict[str, Number]:
        """Return the distances that hold most of the gradient, and the sufficient context."""
        within = {
            f"{share:.0%} of the gradient within (tokens)": Number(*within_3)
            for share, within_3 in zip(_SHARES, self.within_3P.T, strict=True)
        }
        name = f"context that changes the prediction by less than {_SMALL_KL} nats (tokens)"
        return within | {name: Number(self.sufficient_context)}

    def draw(self, axes: Sequence[Axes], color: str) -> None:
        """Draw the gradient above and the divergence below."""
        above, below = axes
        draw_band(above, self.distance_X, self.gradient_3X, color)
        draw_band(below, self.context_K, self.kl_3K, color)
        if math.isfinite(self.limit):
            above.axvline(self.limit, color=INK, lw=1, ls=DASHED)
        token_axis(above.yaxis)
        token_axis(below.xaxis)

    @classmethod
    def legend(cls, members: Sequence["ReceptiveField"]) -> list[Line2D]:
        """Return the entry of the windows, if any member has windows in all layers."""
        if any(math.isfinite(member.limit) for member in members):
            return [handle("end of all windows", color=INK, lw=1, ls=DASHED)]
        return []


def _in_chunks(inside: Capture, program: Callable, *rows: np.ndarray) -> np.ndarray:
    """Run a program on rows of a capture, as many at once as fit the memory."""
    config, T = inside.config, rows[0].shape[1]
    table = config.position_table(inside.context_length, T)
    size = max(1, _MAX_WEIGHTS // (config.num_layers * config.num_heads * T * T))
    parts = [
        program(config, inside.params, table, *(x[start : start + size] for x in rows))
        for start in range(0, len(rows[0]), size)
    ]
    return np.concatenate(parts).astype(np.float64)


def _truncate(tokens_BT: np.ndarray, query_B: np.ndarray, context: int) -> tuple[np.ndarray, ...]:
    """Return tokens, positions and segment ids of documents that begin `context` tokens back."""
    start_B1 = np.maximum(query_B + 1 - context, 0)[:, None]
    indices_T = np.arange(tokens_BT.shape[1], dtype=np.int32)
    positions_BT = np.maximum(indices_T - start_B1, 0).astype(np.int32)
    return tokens_BT, positions_BT, 1 + (indices_T >= start_B1).astype(np.int32)


@functools.partial(jax.jit, static_argnums=0)
def _gradients(
    config: ModelConfig, params: Params, table: PositionTable, tokens_BT, query_B, answer_B
) -> jax.Array:
    """Return the gradient's norm with respect to the embedding of every token, `[B, T]`."""
    B, T = tokens_BT.shape
    # Every token of every row gets its own embedding, and so its own gradient.
    ids_BT = jnp.arange(B * T).reshape(B, T)
    positions_BT = jnp.broadcast_to(jnp.arange(T), (B, T))

    def log_odds(embedding_VD: jax.Array) -> jax.Array:
        own_params, segments_BT = {**params, "embedding": embedding_VD}, jnp.ones_like(ids_BT)
        hidden_BTD = transformer.hidden(
            config, own_params, table, ids_BT, positions_BT, segments_BT
        )
        logits_BV = _logits_at(config, params, hidden_BTD, query_B)
        is_answer_BV = jnp.arange(logits_BV.shape[1]) == answer_B[:, None]
        others_BV = jnp.where(is_answer_BV, -jnp.inf, logits_BV)
        answers_BV = jnp.where(is_answer_BV, logits_BV, 0)
        return answers_BV.sum() - jax.nn.logsumexp(others_BV, axis=1).sum()

    with jax.default_matmul_precision("highest"):
        gradient_VD = jax.grad(log_odds)(jnp.asarray(params["embedding"])[tokens_BT.ravel()])
    return jnp.linalg.norm(gradient_VD, axis=-1).reshape(B, T)


@functools.partial(jax.jit, static_argnums=0)
def _log_probs(config: ModelConfig, params: Params, table: PositionTable, *rows) -> jax.Array:
    """Return log-probabilities `[B, V]` after each row's query."""
    *rows, query_B = rows
    with jax.default_matmul_precision("highest"):
        hidden_BTD = transformer.hidden(config, params, table, *rows)
        return jax.nn.log_softmax(_logits_at(config, params, hidden_BTD, query_B))


def _logits_at(config: ModelConfig, params: Params, hidden_BTD, query_B) -> jax.Array:
    """Return the logits at one position of each row, `[B, V]`."""
    hidden_1BD = hidden_BTD[jnp.arange(len(query_B)), query_B][None]
    return transformer.unembed(config, params, hidden_1BD)[0]


def _by_distance(x_BT: np.ndarray, query_B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return values by distance to each row's query, `[B, M]`, and 1.0 where a token exists."""
    key_BM = query_B[:, None] - np.arange(x_BT.shape[1])
    exists_BM = key_BM >= 0
    x_BM = np.take_along_axis(x_BT, np.maximum(key_BM, 0), axis=1)
    return np.where(exists_BM, x_BM, 0), exists_BM.astype(float)
