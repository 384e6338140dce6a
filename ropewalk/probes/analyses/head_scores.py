"""Head scores of the literature.

Each is a mean over queries and documents of one head's attention weights:

- prefix matching (Olsson et al. 2022, arXiv 2209.11895): on rows of distinct random ids, repeated
  once, without BOS: the weight of a query of the repetition on the id that followed its own id
  before. An induction head has 1.
- previous token: on documents, the weight on the key before the query; all queries but the first.
- first token (Gu et al. 2024, arXiv 2410.10781): on documents, the weight on the first token, BOS;
  all queries, including the first. A head above 0.3 is a sink.
- retrieval (Wu et al. 2024, arXiv 2404.15574): of the questions that the model answers
  correctly, the share for which the head's largest weight is on the answer.
- entropy of the weights, and the mean distance to the keys.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import entr
from matplotlib.axes import Axes

from ropewalk.data.tokenizer import Tokenizer
from ropewalk.probes.capturing import Capture, capture
from ropewalk.probes.probe import HeadProbe, Number, draw_points, format_number
from ropewalk.probes.questions import Questions
from ropewalk.probes.resample import bootstrap_mean
from ropewalk.probes.subject import Subject, untrained
from ropewalk.utils.figures import DOTTED, FAINT, INK, handle, mark_handle, token_axis

_SINK = 0.3  # mean weight on the first token
_MAX_LINES, _NUM_HIGHEST = 64, 6  # lines of the table, and heads per kind if there are more
_REPEATED = 50  # distinct ids of a row of repeated ids
_REPEATED_ROWS = 64


class HeadScores(HeadProbe):
    """Prefix matching, previous token, first token, retrieval, entropy, and distance of each head.

    For every layer and head; `_3LN` are a mean and the ends of its 95% interval over documents.

    Attributes:
      prefix_3LN, previous_3LN, first_3LN, retrieval_3LN: shares, defined in the module's docstring.
        Retrieval is NaN if no question is answered correctly.
      entropy_3LN: nats.
      distance_3LN: tokens.
      uniform_LX: the same scores, in this order, of equal weights on all visible keys; of
        retrieval, the probability that a random visible key is the answer.
      random_LN: retrieval of a model of this shape with random weights, as before training.
    """

    title = "Head scores"
    caption = """
    Above: the share of a head's weight on the token after the last occurrence of the query's id
    (prefix matching), on the token before the query, and on the document's first token, and how
    often its largest weight is on the answer (retrieval). Below: mean distance to the keys, and the
    number of tokens that the weights spread over. Bars are 95% intervals over documents, gray lines
    the scores of equal weights, triangles the retrieval of random weights."""
    by_default = True
    sentences: ClassVar = {
        "retrieval, highest of heads": "{head} has its largest weight on {value} of the answers",
        "prefix matching, highest of heads": "{head} puts {value} of its weight on the token after "
        "the query's last occurrence",
        "previous token, highest of heads": "{head} puts {value} of its weight on the token before",
        "retrieval, highest of random heads": "a head of random weights finds {value} of answers",
        "sinks (share of heads)": "{value} of the heads are sinks",
        "entropy, mean over heads (nats)": "weights have a mean entropy of {value} nats",
    }
    y_labels = "share", "spread over (tokens)"
    sharey = "row"
    references = (
        handle("equal weights", color=FAINT, lw=1.5),
        mark_handle("random weights", "^", color=FAINT),
        handle("threshold of sinks", color=INK, lw=1, ls=DOTTED),
    )

    @classmethod
    def measure(cls, subject: Subject) -> "HeadScores":
        """Score the heads on the captured questions; see `head_scores`."""
        run, captured = subject.run, subject.capture
        repeated = capture(run, repeated_ids(run.tokenizer, captured.length))
        random = dataclasses.replace(run, params=untrained(run).params)
        random = capture(random, captured.tokens_BT)
        return head_scores(captured, subject.questions, subject.is_right, repeated, random)

    @property
    def shares(self) -> dict[str, np.ndarray]:
        """Scores between 0 and 1, by their labels in figures."""
        return {
            "prefix\nmatching": self.prefix_3LN,
            "previous\ntoken": self.previous_3LN,
            "first\ntoken": self.first_3LN,
            "retrieval": self.retrieval_3LN,
        }

    def numbers(self) -> dict[str, Number]:
        """Return the highest scores, and the share of sinks."""
        return {
            "retrieval, highest of heads": self.highest(self.retrieval_3LN, 1),
            "prefix matching, highest of heads": self.highest(self.prefix_3LN, 1),
            "previous token, highest of heads": self.highest(self.previous_3LN, 1),
            "retrieval, highest of random heads": Number(float(self.random_LN.max()), largest=1),
            "sinks (share of heads)": Number(float((self.first_3LN[0] > _SINK).mean()), largest=1),
            "entropy, mean over heads (nats)": Number(float(self.entropy_3LN[0].mean())),
        }

    def lines(self) -> list[dict[str, str]]:
        """Return a line per head; in large models the highest heads of each kind."""
        lines = super().lines()
        if len(lines) <= _MAX_LINES:
            return lines
        kinds = {
            kind.replace("\n", " "): np.argsort(-score_3LN[0].ravel())[:_NUM_HIGHEST]
            for kind, score_3LN in self.shares.items()
            if not np.isnan(score_3LN[0]).all()
        }
        return [{"highest in": kind} | lines[i] for kind, heads in kinds.items() for i in heads]

    def line(self, head: tuple[int, int]) -> dict[str, str]:
        """Return the scores of a head."""
        return {
            "retrieval [95% CI]": format_number([Number(*self.retrieval_3LN[:, *head])]),
            "prefix matching [95% CI]": format_number([Number(*self.prefix_3LN[:, *head])]),
            "previous token": f"{self.previous_3LN[0][head]:.3g}",
            "first token": f"{self.first_3LN[0][head]:.3g}",
            "entropy (nats)": f"{self.entropy_3LN[0][head]:.3g}",
            "distance (tokens)": f"{self.distance_3LN[0][head]:.3g}",
        }

    def draw(self, axes: Sequence[Axes], color: str) -> None:
        """Draw shares above and spread below."""
        above, below = axes
        shares, last = self.shares, len(self.shares) - 1
        offsets = np.linspace(-0.3, 0.3, len(self.heads)) if self.heads[1:] else [0.0]
        for (head, color), offset in zip(self.colors, offsets, strict=True):
            score_3S = np.stack([score_3LN[:, *head] for score_3LN in shares.values()], axis=1)
            draw_points(above, np.arange(len(shares)) + offset, score_3S, color, size=4)
            spread = math.exp(self.entropy_3LN[0][head])
            below.plot(self.distance_3LN[0][head], spread, "o", color=color, ms=5, zorder=3)
        *uniform_S, entropy, distance = self.uniform_LX.mean(axis=0)
        for column, uniform in enumerate(uniform_S):
            above.hlines(uniform, column - 0.42, column + 0.42, color=FAINT, lw=1.5)
        above.plot(last, self.random_LN.max(), "^", color=FAINT, ms=5)
        above.axhline(_SINK, 2 / 4, 3 / 4, color=INK, lw=1, ls=DOTTED)
        above.set_xticks(range(len(shares)), list(shares), fontsize=7)
        above.set_xlim(-0.5, last + 0.5)
        above.set_ylim(-0.03, 1.03)
        below.plot(distance, math.exp(entropy), "_", color=FAINT, ms=12, mew=1.5)
        below.set_xlabel("mean distance (tokens)")
        below.set_xlim(0, 1.15 * max(distance, self.distance_3LN[0].max()))
        token_axis(below.yaxis)


def repeated_ids(tokenizer: Tokenizer, length: int) -> np.ndarray:
    """Return rows of distinct random ids, repeated once: int32 `[B, 2 n]`, 2 n <= `length`."""
    ids = np.concatenate([tokenizer.fillers, tokenizer.keys, tokenizer.values])
    random, count = np.random.default_rng(0), min(_REPEATED, length // 2, len(ids))
    rows = [random.choice(ids, count, replace=False) for _ in range(_REPEATED_ROWS)]
    return np.tile(np.stack(rows), 2).astype(np.int32)


def head_scores(
    captured: Capture, questions: Questions, right_Q: np.ndarray, repeated: Capture, random: Capture
) -> HeadScores:
    """Score every head.

    Args:
      captured, questions: the result of `probes.questions.capture_recall`.
      right_Q: which questions the model answers correctly.
      repeated: a capture of `repeated_ids`.
      random: a capture of the rows of `captured` by a model with random weights.
    """
    T, n = captured.length, repeated.length // 2
    scores_BXLN, equal_XL = _mean_scores(captured, _sum_scores, [T - 1, T, T, T])
    prefix_BXLN, equal_prefix_XL = _mean_scores(repeated, functools.partial(_sum_prefix, n), [n])
    previous_3LN, first_3LN, entropy_3LN, distance_3LN = bootstrap_mean(scores_BXLN).swapaxes(0, 1)
    uniform_XL = np.concatenate([equal_prefix_XL, equal_XL])
    num_visible_LT = captured.is_visible(np.arange(captured.length)).cumsum(axis=1)
    is_seen_LQ = captured.is_visible(questions.distances)
    chance_L = (is_seen_LQ / num_visible_LT[:, questions.query_Q]).mean(axis=1)
    return HeadScores(
        prefix_3LN=bootstrap_mean(prefix_BXLN[:, 0]),
        previous_3LN=previous_3LN,
        first_3LN=first_3LN,
        retrieval_3LN=retrieval(captured, questions, right_Q),
        entropy_3LN=entropy_3LN,
        distance_3LN=distance_3LN,
        uniform_LX=np.insert(uniform_XL, 3, chance_L, axis=0).T,
        random_LN=retrieval(random, questions, right_Q)[0],
    )


def retrieval(captured: Capture, questions: Questions, right_Q: np.ndarray) -> np.ndarray:
    """Return every head's retrieval score with its 95% interval over documents, `[3, L, N]`.

    Arguments as of `head_scores`. NaN if no question is answered correctly.
    """
    row_Q, query_Q, key_Q, _ = questions
    num_rows = len(captured.tokens_BT)
    hits_BLN = np.zeros((num_rows, captured.config.num_layers, captured.config.num_heads))
    for layer in range(captured.config.num_layers):
        largest_BNT = np.concatenate(
            [np.asarray(logits.argmax(axis=-1)) for _, logits, _ in captured.chunks(layer)], axis=2
        )
        is_hit_QN = (largest_BNT[row_Q, :, query_Q] == key_Q[:, None]) & right_Q[:, None]
        np.add.at(hits_BLN[:, layer], row_Q, is_hit_QN)
    return bootstrap_mean(hits_BLN, np.bincount(row_Q[right_Q], minlength=num_rows))


def _mean_scores(
    captured: Capture, scores: Callable, num_queries_X: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Return means over queries of the sums `scores(weights, distances)`, `[B, X, L, N]`.

    Also those of equal weights on all visible keys, `[X, L]`.
    """
    indices_S, layers = np.arange(captured.length), []
    for layer in range(captured.config.num_layers):
        sum_BXN = equal_1X1 = 0.0
        for indices_T, logits_BNTS, weights_BNTS in captured.chunks(layer):
            distances_TS = indices_T[:, None] - indices_S
            is_seen_11TS = jnp.isfinite(logits_BNTS[:1, :1])
            equal_11TS = is_seen_11TS / is_seen_11TS.sum(axis=-1, keepdims=True)
            sum_BXN += np.asarray(scores(weights_BNTS, distances_TS), np.float64)
            equal_1X1 += np.asarray(scores(equal_11TS, distances_TS), np.float64)
        layers.append((sum_BXN, equal_1X1))
    sum_BXLN, equal_1XL1 = (np.stack(sums, axis=2) for sums in zip(*layers, strict=True))
    num_queries_X11 = np.array(num_queries_X)[:, None, None]
    return sum_BXLN / num_queries_X11, (equal_1XL1 / num_queries_X11)[0, ..., 0]


@jax.jit
def _sum_scores(weights_BNTS, distances_TS) -> jax.Array:
    scores = (
        weights_BNTS * (distances_TS == 1),
        weights_BNTS * (distances_TS == distances_TS[:, :1]),  # key 0
        entr(weights_BNTS),
        weights_BNTS * distances_TS,
    )
    return jnp.stack([score_BNTS.sum(axis=(2, 3)) for score_BNTS in scores], axis=1)


@functools.partial(jax.jit, static_argnums=0)
def _sum_prefix(n: int, weights_BNTS, distances_TS) -> jax.Array:
    """Return sums of the weights on keys that follow the query's id, which is n tokens back."""
    follows_TS = (distances_TS == n - 1) & (distances_TS[:, :1] >= n)
    return (weights_BNTS * follows_TS).sum(axis=(2, 3))[:, None]
