"""How far back tokens are felt in an answer: by gradients, and by what cutting them off does.

The receptive field of Chi et al. 2023 (arXiv 2212.10356), at one position of each document, that of
its last question: the norm of the gradient with respect to each token's embedding. It is that of
the answer's log-odds, ln(p / (1 - p)), which do not level off where a model is sure, as the loss
does. Beyond the sum over layers of (window - 1), one more in each with shifted keys, it is 0.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from evals.estimate.bins import fine_bin_number
from model import transformer
from model.config import ModelConfig
from model.positions import NO_WINDOW, PositionTable, position_table
from model.transformer import Params
from probes.figures import COLORS, DASHES, first_column, panels
from probes.inside import Capture
from probes.probe import Number, Probe, over_documents, within
from probes.questions import Questions
from probes.subject import Subject
from reporting.looks import INK
from reporting.style import handle, token_axis

# Weights of attention that exist at once: a quarter of a GiB in float32.
_WEIGHTS = 2**26
_PARTS = 0.5, 0.9  # of the gradient
_LITTLE = 0.1  # nats


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class ReceptiveField(Probe):
    """How far back tokens are felt in an answer: gradient by distance, and a cut context's loss.

    `_3` are a mean over documents and the ends of its 95% interval.

    Attributes:
      distance_X: tokens, the mean of a bin: an eighth of an octave, or one distance.
      felt_3X: the gradient's norm with respect to one token of the bin; 1 is the mean over all
        tokens up to the question.
      within_3P: tokens back within which half and nine tenths of it lie.
      kept_K: tokens, the query's own included, that a document is cut to.
      kl_3K: nats, from what the model says with all of the document to what it says with these.
      limit: tokens; nothing is felt from farther back, by the model's windows. inf without.
    """

    title = "How far back a token is felt"
    caption = """
    At the last question of each document. Above: the norm of the gradient with respect to a token
    so far back, where 1 is the mean over all tokens; dashed, what the windows of all layers
    together let through. Below: by how much the prediction changes (Kullback-Leibler divergence)
    where only so many tokens of the document are left. Bands: 95% intervals over documents; a line
    a seed."""

    distance_X: np.ndarray
    felt_3X: np.ndarray
    within_3P: np.ndarray
    kept_K: np.ndarray
    kl_3K: np.ndarray
    limit: float

    @classmethod
    def look(cls, subject: Subject) -> "ReceptiveField":
        """See `receptive_field`."""
        return receptive_field(*subject.asked)

    @property
    def enough(self) -> float:
        """The fewest tokens of those tried that leave the prediction as it is, to 0.1 nats."""
        # From there on, for it may fall below, rise and fall again; with all tokens it is 0.
        is_little_K = np.minimum.accumulate((self.kl_3K[0] < _LITTLE)[::-1])[::-1]
        return float(self.kept_K[is_little_K.argmax()])

    def numbers(self) -> dict[str, Number]:
        """How far most of the gradient reaches, and what may be cut off."""
        within = {
            f"{part:.0%} of the gradient within (tokens)": Number(*within_3.tolist())
            for part, within_3 in zip(_PARTS, self.within_3P.T, strict=True)
        }
        return within | {f"as with all tokens, to {_LITTLE} nats, with": Number(self.enough)}

    @classmethod
    def plot(cls, found: Mapping[str, Sequence["ReceptiveField"]]) -> Figure:
        """A line a seed."""
        figure, axes = panels(list(found), rows=2, legend=False, sharex=True, sharey="row")
        for (above, below), seeds in zip(axes, found.values(), strict=True):
            for each, color in zip(seeds, COLORS * len(seeds), strict=False):
                drawn = (
                    (above, each.distance_X, each.felt_3X),
                    (below, each.kept_K, each.kl_3K),
                )
                for ax, x, y_3 in drawn:
                    ax.plot(x, y_3[0], color=color, lw=1.4)
                    ax.fill_between(x, y_3[1], y_3[2], color=color, alpha=0.2, lw=0)
                if math.isfinite(each.limit):
                    above.axvline(each.limit, color=INK, lw=1, ls=DASHES)
            above.set_xscale("log", base=2)
            above.set_yscale("log", base=2)
            token_axis(above.yaxis, num_ticks=8)
            token_axis(below.xaxis, num_ticks=5)
        for above, below in first_column(axes):
            above.set_ylabel("gradient (mean = 1)")
            below.set_ylabel("KL divergence (nats)")
        figure.supxlabel("tokens back; tokens left (log scale)", fontsize=10)
        if any(math.isfinite(each.limit) for seeds in found.values() for each in seeds):
            windows = handle("end of all windows", color=INK, lw=1, ls=DASHES)
            figure.legend(handles=[windows], loc="outside right center")
        return figure


def receptive_field(inside: Capture, questions: Questions) -> ReceptiveField:
    """How far back tokens are felt at the last question of each row.

    Args:
      inside, questions: as `probes.questions.ask` gives them.
    """
    rows, first = np.unique(questions.row_Q[::-1], return_index=True)
    last = len(questions.row_Q) - 1 - first
    query_B, key_B = questions.query_Q[last], questions.key_Q[last]
    tokens_BT = inside.tokens_BT[rows]
    asked = _Asked(inside, tokens_BT, query_B, tokens_BT[np.arange(len(rows)), key_B])
    norm_BM, is_there_BM = _by_distance(asked.gradients(), query_B)
    share_BM = norm_BM / norm_BM.sum(axis=1, keepdims=True)
    # Bins of the distances that there are, from 1 on: at 0 is the query itself.
    distances_M = np.arange(1, query_B.max() + 1)
    starts_X = np.flatnonzero(np.diff(fine_bin_number(distances_M), prepend=-1))
    felt_BM = share_BM * (query_B + 1)[:, None]
    felt_BX, count_BX = (
        np.add.reduceat(each_BM[:, distances_M], starts_X, axis=1)
        for each_BM in (felt_BM, is_there_BM)
    )
    sizes_X = np.diff(np.append(starts_X, len(distances_M)))
    whole_BV = asked.log_probs(query_B + 1)
    kept_K = np.unique((2 ** np.arange(0, math.log2(inside.length) + 0.5, 0.5)).astype(int))
    kept_K = np.append(kept_K[kept_K < inside.length], inside.length)
    kl_BK = np.stack([_kl(whole_BV, asked.log_probs(kept)) for kept in kept_K], axis=1)
    one_B = np.ones(len(rows))
    return ReceptiveField(
        distance_X=np.add.reduceat(distances_M, starts_X) / sizes_X,
        felt_3X=over_documents(felt_BX, count_BX),
        within_3P=within(share_BM, _PARTS),
        kept_K=kept_K,
        kl_3K=over_documents(kl_BK, one_B),
        limit=_limit(inside),
    )


@dataclasses.dataclass(frozen=True, eq=False)
class _Asked:
    """Rows, the position of each that is looked at, and the id whose log-odds are.

    Attributes:
      inside: says what model it is.
    """

    inside: Capture
    tokens_BT: np.ndarray
    query_B: np.ndarray
    answer_B: np.ndarray

    def gradients(self) -> np.ndarray:
        """Norms with respect to the embedding of every token, `[B, T]`."""
        return self._in_parts(_gradients, self.tokens_BT, self.query_B, self.answer_B)

    def log_probs(self, kept_B: np.ndarray | int) -> np.ndarray:
        """Of the next token, `[B, V]`, where the document is its last so many tokens."""
        start_B1 = np.maximum(self.query_B + 1 - kept_B, 0)[:, None]
        places_T = np.arange(self.tokens_BT.shape[1], dtype=np.int32)
        positions_BT = np.maximum(places_T - start_B1, 0).astype(np.int32)
        segment_ids_BT = 1 + (places_T >= start_B1).astype(np.int32)
        rows = self.tokens_BT, positions_BT, segment_ids_BT, self.query_B
        return self._in_parts(_log_probs, *rows)

    def _in_parts(self, program, *columns: np.ndarray) -> np.ndarray:
        inside, T = self.inside, self.tokens_BT.shape[1]
        config = inside.config
        table = position_table(config, inside.context_length, T)
        size = max(1, _WEIGHTS // (config.num_layers * config.num_heads * T * T))
        return np.concatenate(
            [
                program(config, inside.params, table, *(each[i : i + size] for each in columns))
                for i in range(0, len(self.tokens_BT), size)
            ]
        ).astype(np.float64)


@functools.partial(jax.jit, static_argnums=0)
def _gradients(
    config: ModelConfig, params: Params, table: PositionTable, tokens_BT, query_B, answer_B
) -> jax.Array:
    B, T = tokens_BT.shape
    # Every token of every row has an embedding of its own, so that each has a gradient of its own.
    own_BT = jnp.arange(B * T).reshape(B, T)
    positions_BT = jnp.broadcast_to(jnp.arange(T), (B, T))

    def log_odds(embedding_VD: jax.Array) -> jax.Array:
        own = {**params, "embedding": embedding_VD}
        one_BT = jnp.ones_like(own_BT)
        hidden_BTD = transformer.hidden(config, own, table, own_BT, positions_BT, one_BT)
        logits_BV = _at(config, params, hidden_BTD, query_B)
        is_answer_BV = jnp.arange(logits_BV.shape[1]) == answer_B[:, None]
        others_BV = jnp.where(is_answer_BV, -jnp.inf, logits_BV)
        answers_BV = jnp.where(is_answer_BV, logits_BV, 0)
        return answers_BV.sum() - jax.nn.logsumexp(others_BV, axis=1).sum()

    with jax.default_matmul_precision("highest"):
        gradient_VD = jax.grad(log_odds)(jnp.asarray(params["embedding"])[tokens_BT.ravel()])
    return jnp.linalg.norm(gradient_VD, axis=-1).reshape(B, T)


@functools.partial(jax.jit, static_argnums=0)
def _log_probs(config: ModelConfig, params: Params, table: PositionTable, *rows) -> jax.Array:
    *rows, query_B = rows
    with jax.default_matmul_precision("highest"):
        hidden_BTD = transformer.hidden(config, params, table, *rows)
        return jax.nn.log_softmax(_at(config, params, hidden_BTD, query_B))


def _at(config: ModelConfig, params: Params, hidden_BTD, query_B) -> jax.Array:
    """Logits at one position of each row, `[B, V]`."""
    hidden_1BD = hidden_BTD[jnp.arange(len(query_B)), query_B][None]
    return transformer.unembed(config, params, hidden_1BD)[0]


def _by_distance(x_BT: np.ndarray, query_B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What stands so many tokens before each row's query, `[B, M]`, and whether anything does."""
    key_BM = query_B[:, None] - np.arange(x_BT.shape[1])
    is_there_BM = key_BM >= 0
    x_BM = np.take_along_axis(x_BT, np.maximum(key_BM, 0), axis=1)
    return np.where(is_there_BM, x_BM, 0), is_there_BM.astype(float)


def _kl(p_BV: np.ndarray, q_BV: np.ndarray) -> np.ndarray:
    """From log p to log q, nats, `[B]`."""
    return (np.exp(p_BV) * (p_BV - q_BV)).sum(axis=1)


def _limit(inside: Capture) -> float:
    window_L = position_table(inside.config, inside.context_length).window.astype(np.int64)
    if (window_L == NO_WINDOW).any():
        return math.inf
    return float((window_L - 1 + inside.config.shift_keys).sum())
