"""What a head does, by the scores that papers give heads.

Each is a mean over queries and documents, of one head's weights after softmax:

- prefix matching (Olsson et al. 2022, arXiv 2209.11895): on rows of distinct random ids said twice,
  without BOS, the weight that a query of the second time puts on the id that came after its own the
  first time. An induction head has 1.
- previous token: on documents, the weight on the key before the query; of all but first queries.
- first token (Gu et al. 2024, arXiv 2410.10781): on documents, the weight on the first token, BOS;
  of all queries, its own included. A head above 0.3 is a sink.
- retrieval (Wu et al. 2024, arXiv 2404.15574): of the questions of key-value recall that the model
  answers right, the share whose heaviest weight is on the value that is then said.
- entropy of the weights, and the mean distance they look back.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import entr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from data.tokenizer import Tokenizer
from probes.figures import COLORS, first_column, head_handles, panels
from probes.inside import Capture, capture
from probes.page import said
from probes.probe import Number, Probe, heads, over_documents
from probes.questions import Questions
from probes.subject import Subject, untrained
from reporting.looks import FAINT, INK
from reporting.style import handle, token_axis

_SINK = 0.3  # mean weight on the first token
_REPEATED = 50  # ids that are said twice
_REPEATED_ROWS = 64


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class HeadScores(Probe):
    """Prefix matching, previous token, first token, retrieval, entropy, distance: of every head.

    Of every layer and head; `_3LN` are a mean and the ends of its 95% interval over documents.

    Attributes:
      prefix_3LN, previous_3LN, first_3LN, retrieval_3LN: shares; the module says of what. Of
        retrieval NaN where no question is answered right.
      entropy_3LN: nats.
      distance_3LN: tokens.
      uniform_LX: the same in this order, of weights equal over all that a query sees; of retrieval
        the chance that one of the keys it sees, at random, is the right one.
      random_LN: retrieval by a model of this shape with random weights, as training starts from.
    """

    title = "What heads do"
    caption = """
    Above: the share of a head's weight that goes to the token after the last occurrence of the
    query's own (prefix matching), to the one before the query, and to the document's first token,
    and how often its heaviest weight is on the answer (retrieval). Below: how far it looks back and
    over how many tokens it spreads. Bars are 95% intervals over documents, grey lines what equal
    weights give, triangles what heads of random weights retrieve."""
    by_default = True

    prefix_3LN: np.ndarray
    previous_3LN: np.ndarray
    first_3LN: np.ndarray
    retrieval_3LN: np.ndarray
    entropy_3LN: np.ndarray
    distance_3LN: np.ndarray
    uniform_LX: np.ndarray
    random_LN: np.ndarray

    @classmethod
    def look(cls, subject: Subject) -> "HeadScores":
        """See `head_scores`."""
        run, (inside, questions) = subject.run, subject.asked
        repeated = capture(run, repeated_ids(run.tokenizer, inside.length))
        random = dataclasses.replace(run, params=untrained(run).params)
        random = capture(random, inside.tokens_BT)
        return head_scores(inside, questions, subject.is_right, repeated, random)

    @property
    def shares(self) -> dict[str, np.ndarray]:
        """The scores between 0 and 1, by what figures call them."""
        return {
            "prefix\nmatching": self.prefix_3LN,
            "previous\ntoken": self.previous_3LN,
            "first\ntoken": self.first_3LN,
            "retrieval": self.retrieval_3LN,
        }

    def numbers(self) -> dict[str, Number]:
        """The highest score of any head, and how many are sinks."""
        highest = {
            f"{name}, highest head": _highest(score_3LN)
            for name, score_3LN in (
                ("retrieval", self.retrieval_3LN),
                ("prefix matching", self.prefix_3LN),
                ("previous token", self.previous_3LN),
            )
        }
        return highest | {
            "retrieval, highest of random weights": Number(float(self.random_LN.max())),
            "sinks (share of heads)": Number(float((self.first_3LN[0] > _SINK).mean())),
            "entropy, mean of heads (nats)": Number(float(self.entropy_3LN[0].mean())),
        }

    def lines(self) -> list[dict[str, str]]:
        """A line a head."""
        return [
            {
                "layer": str(layer),
                "head": str(head),
                "retrieval [95% CI]": said([Number(*self.retrieval_3LN[:, layer, head])]),
                "prefix matching [95% CI]": said([Number(*self.prefix_3LN[:, layer, head])]),
                "previous token": f"{self.previous_3LN[0, layer, head]:.3g}",
                "first token": f"{self.first_3LN[0, layer, head]:.3g}",
                "entropy (nats)": f"{self.entropy_3LN[0, layer, head]:.3g}",
                "distance (tokens)": f"{self.distance_3LN[0, layer, head]:.3g}",
            }
            for layer, head in heads(self.random_LN)
        ]

    @classmethod
    def plot(cls, found: Mapping[str, Sequence["HeadScores"]]) -> Figure:
        """Of several seeds the first, for heads have no common order."""
        figure, axes = panels(list(found), rows=2, sharey="row")
        for (above, below), (first, *_) in zip(axes, found.values(), strict=True):
            first._draw(above, below)
        for above, below in first_column(axes):
            above.set_ylabel("share")
            below.set_ylabel("spread over (tokens)")
        figure.legend(
            handles=[
                *head_handles(seeds[0].random_LN for seeds in found.values()),
                handle("equal weights", color=FAINT, lw=1.5),
                handle("random weights", marker="^", color=FAINT, ls="none"),
                handle("a sink is above", color=INK, lw=0.8, ls=":"),
            ],
            loc="outside right center",
        )
        return figure

    def _draw(self, above: Axes, below: Axes) -> None:
        places = heads(self.random_LN)
        aside = np.linspace(-0.3, 0.3, len(places)) if len(places) > 1 else [0.0]
        shares = self.shares
        for place, color, x in zip(places, COLORS * len(places), aside, strict=False):
            for column, score_3LN in enumerate(shares.values()):
                _dot(above, column + x, score_3LN[:, *place], color)
            spread_3 = np.exp(self.entropy_3LN[:, *place])
            below.plot(self.distance_3LN[0, *place], spread_3[0], "o", color=color, ms=5, zorder=3)
        for column, uniform in enumerate(self.uniform_LX.mean(axis=0)[: len(shares)]):
            above.hlines(uniform, column - 0.42, column + 0.42, color=FAINT, lw=1.5)
        above.plot(len(shares) - 1, self.random_LN.max(), "^", color=FAINT, ms=5)
        above.axhline(_SINK, 2 / 4, 3 / 4, color=INK, lw=0.8, ls=":")
        above.set_xticks(range(len(shares)), shares, fontsize=7)
        above.set_xlim(-0.5, len(shares) - 0.5)
        above.set_ylim(-0.03, 1.03)
        *_, entropy, distance = self.uniform_LX.mean(axis=0)
        below.plot(distance, math.exp(entropy), "_", color=FAINT, ms=12, mew=1.5)
        below.set_xlabel("looks back (tokens)", fontsize=9)
        below.set_xlim(0, 1.15 * max(distance, self.distance_3LN[0].max()))
        below.set_yscale("log", base=2)
        token_axis(below.yaxis)


def _dot(ax: Axes, x: float, score_3: np.ndarray, color: str) -> None:
    value, low, high = score_3
    ax.plot(x, value, "o", color=color, ms=4, zorder=3)
    ax.vlines(x, low, high, color=color, lw=1.2)


def _highest(score_3LN: np.ndarray) -> Number:
    if np.isnan(score_3LN[0]).all():
        return Number(math.nan)
    place = np.unravel_index(np.nanargmax(score_3LN[0]), score_3LN[0].shape)
    return Number(*score_3LN[:, *place].tolist())


def repeated_ids(tokenizer: Tokenizer, length: int) -> np.ndarray:
    """Rows of distinct random ids said twice, int32 `[B, 2 n]`; no more than `length` tokens."""
    known = np.concatenate([tokenizer.fillers, tokenizer.keys, tokenizer.values])
    random, count = np.random.default_rng(0), min(_REPEATED, length // 2, len(known))
    rows = [random.choice(known, count, replace=False) for _ in range(_REPEATED_ROWS)]
    return np.tile(np.stack(rows), 2).astype(np.int32)


def head_scores(
    inside: Capture, questions: Questions, right_Q: np.ndarray, repeated: Capture, random: Capture
) -> HeadScores:
    """Every head's scores.

    Args:
      inside, questions: as `probes.questions.ask` gives them.
      right_Q: which of them the model answers right.
      repeated: of rows as `repeated_ids` makes them.
      random: the rows of `inside` in a model of random weights.
    """
    previous_3LN, first_3LN, entropy_3LN, distance_3LN = _over_rows(_looks(inside))
    (prefix_3LN,) = _over_rows(_prefix(repeated))
    equal = [_prefix(_equal(repeated)), _looks(_equal(inside))]
    uniform_XL = np.concatenate([scores_BXLN[0, ..., 0] for scores_BXLN in equal])
    sees_LT = np.stack(
        [inside.sees(layer, np.arange(inside.length)) for layer in range(len(uniform_XL[0]))]
    )
    chance_L = (1 / sees_LT.cumsum(axis=1))[:, questions.query_Q].mean(axis=1)
    return HeadScores(
        prefix_3LN=prefix_3LN,
        previous_3LN=previous_3LN,
        first_3LN=first_3LN,
        retrieval_3LN=retrieval(inside, questions, right_Q),
        entropy_3LN=entropy_3LN,
        distance_3LN=distance_3LN,
        uniform_LX=np.insert(uniform_XL, 3, chance_L, axis=0).T,
        random_LN=retrieval(random, questions, right_Q)[0],
    )


def retrieval(inside: Capture, questions: Questions, right_Q: np.ndarray) -> np.ndarray:
    """The retrieval score of every head with its 95% interval over documents, `[3, L, N]`.

    Arguments as of `head_scores`; NaN where no question is answered right.
    """
    row_Q, query_Q, key_Q, _ = questions
    num_rows = len(inside.tokens_BT)
    hits_BLN = np.zeros((num_rows, inside.config.num_layers, inside.config.num_heads))
    for layer in range(inside.config.num_layers):
        heaviest_BNT = np.concatenate(
            [np.asarray(logits.argmax(axis=-1)) for _, logits in inside.chunks(layer)], axis=2
        )
        is_hit_QN = (heaviest_BNT[row_Q, :, query_Q] == key_Q[:, None]) & right_Q[:, None]
        np.add.at(hits_BLN[:, layer], row_Q, is_hit_QN)
    return over_documents(hits_BLN, np.bincount(row_Q[right_Q], minlength=num_rows))


def _equal(inside: Capture) -> Capture:
    """One row, of which every query is 0: its weights are equal over all that it sees."""
    row = slice(1)
    return dataclasses.replace(
        inside,
        tokens_BT=inside.tokens_BT[row],
        positions_BT=inside.positions_BT[row],
        segment_ids_BT=inside.segment_ids_BT[row],
        inside=inside.inside._replace(
            q_LBTNH=jnp.zeros_like(inside.inside.q_LBTNH[:, row]),
            k_LBSKH=inside.inside.k_LBSKH[:, row],
        ),
    )


def _over_rows(scores_BXLN: np.ndarray) -> np.ndarray:
    """Each score with its interval, `[X, 3, L, N]`."""
    return over_documents(scores_BXLN, np.ones(len(scores_BXLN))).swapaxes(0, 1)


def _looks(inside: Capture) -> np.ndarray:
    """Previous token, first token, entropy, distance: means over queries, `[B, 4, L, N]`."""
    T = inside.length
    queries_X11 = np.array([T - 1, T, T, T])[:, None, None]
    return _summed(inside, _chunk_looks) / queries_X11


def _prefix(repeated: Capture) -> np.ndarray:
    """Prefix matching, mean over the queries of the second time, `[B, 1, L, N]`."""
    n = repeated.length // 2
    return _summed(repeated, functools.partial(_chunk_prefix, n)) / n


def _summed(inside: Capture, scores: Callable) -> np.ndarray:
    """Sums over queries of `scores(weights, distances)`, `[B, X, L, N]`."""
    layers = []
    for layer in range(inside.config.num_layers):
        parts = [
            np.asarray(scores(logits_BNTS, _distances(queries, inside.length)), np.float64)
            for queries, logits_BNTS in inside.chunks(layer)
        ]
        layers.append(sum(parts))
    return np.stack(layers, axis=2)


def _distances(queries: slice, length: int) -> np.ndarray:
    """From each query back to each key, `[T, S]`."""
    return np.arange(length)[queries, None] - np.arange(length)


@jax.jit
def _chunk_looks(logits_BNTS, distances_TS) -> jax.Array:
    weights_BNTS = jax.nn.softmax(logits_BNTS)
    looks = (
        weights_BNTS * (distances_TS == 1),
        weights_BNTS * (distances_TS == distances_TS[:, :1]),  # of key 0
        entr(weights_BNTS),
        weights_BNTS * distances_TS,
    )
    return jnp.stack([look_BNTS.sum(axis=(2, 3)) for look_BNTS in looks], axis=1)


@functools.partial(jax.jit, static_argnums=0)
def _chunk_prefix(n: int, logits_BNTS, distances_TS) -> jax.Array:
    """The key n - 1 tokens back is the one after the query's own id, said n tokens ago."""
    follows_TS = (distances_TS == n - 1) & (distances_TS[:, :1] >= n)
    weights_BNTS = jax.nn.softmax(logits_BNTS) * follows_TS
    return weights_BNTS.sum(axis=(2, 3))[:, None]
