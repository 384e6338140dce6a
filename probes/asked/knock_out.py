"""Which heads a model needs: they are masked, and it is asked again.

Heads are masked one at a time; together, those of the highest retrieval score first (Wu et al.
2024, arXiv 2404.15574; see `head_scores`) beside as many at random; and all but one, which shows
the distances that this head answers alone: its own window.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from evals.estimate.bins import fine_bin_number
from evals.rows import Rows
from evals.score import Candidate
from model.transformer import without_heads
from probes.asked.head_scores import retrieval
from probes.changed import Effects
from probes.figures import COLORS, DASHES, first_column, head_handles, panels
from probes.page import said
from probes.probe import Number, Probe, heads
from probes.subject import Subject
from reporting.looks import FAINT, INK
from reporting.style import handle, token_axis

_DRAWS = 4  # random orders of heads
_MOST_COUNTS = 6  # numbers of heads that are masked together
_FEWEST = 30  # questions that accuracy is told from

Heads = Sequence[tuple[int, int]]  # (layer, head)


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class KnockOut(Probe):
    """How far the model sees without some heads, and at which distances each head answers alone.

    `_3...` are a value and the ends of its 95% interval over documents. L50 in tokens, NaN where
    the model no longer answers even next door; loss is that of answers to key-value recall, nats.
    X bins of distance, each of 30 questions or more; C numbers of masked heads, D random orders.

    Attributes:
      retrieval_LN: score that heads are ordered by; NaN where no question is answered right.
      longest: distance asked, tokens.
      low_X, high_X: shortest and longest distance of a bin, tokens.
      right_X: share of questions that the model as it is answers right.
      alone_LNX: the same of each head, all others masked, those of other layers too.
      own_l50_3, own_loss_3: of the model as it is.
      without_l50_3LN, without_loss_3LN: without one head.
      said_LN: that L50 in words.
      masked_C: how many heads are masked.
      by_score_l50_3C, by_score_loss_3C: those of the highest scores.
      random_l50_CD, random_loss_CD: as many at random.
    """

    title = "Which heads are needed, and where each answers alone"
    caption = """
    Above: the share of questions that each head answers with all other heads masked (lines), and
    that the model answers as it is (dots). Below: how far the model sees without the heads of the
    highest retrieval scores (line, with 95% intervals over documents) and without as many at random
    (small dots, four draws); dashed, as it is. A cross at the bottom: it does not answer even next
    door."""

    retrieval_LN: np.ndarray
    longest: int
    low_X: np.ndarray
    high_X: np.ndarray
    right_X: np.ndarray
    alone_LNX: np.ndarray
    own_l50_3: np.ndarray
    own_loss_3: np.ndarray
    without_l50_3LN: np.ndarray
    without_loss_3LN: np.ndarray
    said_LN: np.ndarray
    masked_C: np.ndarray
    by_score_l50_3C: np.ndarray
    by_score_loss_3C: np.ndarray
    random_l50_CD: np.ndarray
    random_loss_CD: np.ndarray

    @classmethod
    def look(cls, subject: Subject) -> "KnockOut":
        """See `knock_out`."""
        return knock_out(subject)

    def window(self, layer: int, head: int) -> list[tuple[int, int]]:
        """Distances (first, last) at which the head alone is right every other time or more."""
        places = np.flatnonzero(self.alone_LNX[layer, head] >= 0.5)
        runs = np.split(places, np.flatnonzero(np.diff(places) > 1) + 1) if len(places) else []
        return [(int(self.low_X[run[0]]), int(self.high_X[run[-1]])) for run in runs]

    def numbers(self) -> dict[str, Number]:
        """How many heads answer a distance alone, of all distances on a log scale."""
        answer_X = (self.alone_LNX >= 0.5).sum(axis=(0, 1))
        octaves_X = np.log2((self.high_X + 1) / self.low_X)

        def share(is_it_X: np.ndarray) -> Number:
            return Number(float((octaves_X * is_it_X).sum() / octaves_X.sum()))

        return {
            "L50 as it is (tokens)": Number(*self.own_l50_3.tolist()),
            "L50 without the head of the highest retrieval score (tokens)": Number(
                *self.by_score_l50_3C[:, 0].tolist()
            ),
            "share of octaves that the model answers": share(self.right_X >= 0.5),
            "that exactly one head answers alone": share(answer_X == 1),
            "that several heads answer, each alone": share(answer_X > 1),
            "that the model answers and no head alone": share(
                (self.right_X >= 0.5) & (answer_X == 0)
            ),
        }

    def lines(self) -> list[dict[str, str]]:
        """A line a head."""
        return [
            {
                "layer": str(layer),
                "head": str(head),
                "retrieval score": said([Number(self.retrieval_LN[layer, head])]),
                "L50 without it": str(self.said_LN[layer, head]),
                "loss without it [95% CI]": "{:.2f} [{:.2f}, {:.2f}]".format(
                    *self.without_loss_3LN[:, layer, head]
                ),
                "alone answers": ", ".join(f"{a}-{b}" for a, b in self.window(layer, head))
                or "nothing",
            }
            for layer, head in heads(self.retrieval_LN)
        ]

    @classmethod
    def plot(cls, found: Mapping[str, Sequence["KnockOut"]]) -> Figure:
        """Windows above, masking below; of several seeds the first."""
        figure, axes = panels(list(found), rows=2)
        for (above, below), (first, *_) in zip(axes, found.values(), strict=True):
            first._draw_windows(above)
            first._draw_masked(below)
        for above, below in first_column(axes):
            above.set_ylabel("answered right")
            below.set_ylabel("L50 (tokens)")
        figure.legend(
            handles=[
                *head_handles(seeds[0].retrieval_LN for seeds in found.values()),
                handle("all heads", marker=".", color=INK, ls="none"),
                handle("masked by score", marker="o", color=INK, lw=1.2),
                handle("at random", marker="o", color=FAINT, ms=3, ls="none"),
                handle("as it is", color=INK, lw=1, ls=DASHES),
            ],
            loc="outside right center",
        )
        return figure

    def _draw_windows(self, ax: Axes) -> None:
        middle_X = np.sqrt(self.low_X * self.high_X)
        places = heads(self.retrieval_LN)
        for place, color in zip(places, COLORS * len(places), strict=False):
            ax.plot(middle_X, self.alone_LNX[place], color=color, lw=1.4)
        ax.plot(middle_X, self.right_X, ".", color=INK, ms=4, zorder=4)
        ax.axhline(0.5, color=FAINT, lw=0.8, ls=DASHES)
        ax.set_ylim(-0.03, 1.03)
        ax.set_xscale("log", base=2)
        token_axis(ax.xaxis, num_ticks=8)
        ax.set_xlabel("distance (tokens)", fontsize=8)

    def _draw_masked(self, ax: Axes) -> None:
        most = 1.3 * self.longest
        ax.axhline(self.own_l50_3[0], color=INK, lw=1, ls=DASHES)
        value_C, low_C, high_C = np.clip(self.by_score_l50_3C, 1, most)
        ax.plot(self.masked_C, value_C, "o-", color=INK, ms=5, lw=1.2)
        ax.vlines(self.masked_C, low_C, high_C, color=INK, lw=1.2)
        bottom = ax.get_xaxis_transform()
        for masked, value, random_D in zip(self.masked_C, value_C, self.random_l50_CD, strict=True):
            lost = np.isnan(random_D)
            x_D = masked + 0.12 + 0.05 * np.arange(len(random_D))
            ax.plot(x_D, random_D, "o", color=FAINT, ms=3)
            ax.plot(x_D[lost], 0 * x_D[lost] + 0.03, "x", color=FAINT, ms=3, transform=bottom)
            if np.isnan(value):
                ax.plot(masked, 0.03, "x", color=INK, transform=bottom)
        ax.set_yscale("log", base=2)
        ax.set_ylim(0.9, most)
        token_axis(ax.yaxis)
        ax.set_xticks(self.masked_C)
        ax.set_xlim(0.5, self.masked_C[-1] + 0.5)
        ax.set_xlabel("heads masked", fontsize=8)


def knock_out(subject: Subject, *, draws: int = _DRAWS) -> KnockOut:
    """Masks heads and asks the model again.

    Args:
      subject: the run.
      draws: random orders of all heads, in which they are masked too.

    Raises:
      ValueError: where key-value recall cannot be asked.
    """
    retrieval_LN = retrieval(*subject.asked, subject.is_right)[0]
    L, N = retrieval_LN.shape
    places, random = heads(retrieval_LN), np.random.default_rng(0)
    by_score = [
        places[at] for at in np.argsort(-np.nan_to_num(retrieval_LN.ravel()), kind="stable")
    ]
    counts = np.geomspace(1, max(1, L * N - 1), _MOST_COUNTS).round().astype(int)
    masked_C = np.unique(counts)

    one = [[place] for place in places]
    alone = [[other for other in places if other != place] for place in places]
    together = [by_score[:count] for count in masked_C]
    orders = [random.permutation(L * N) for _ in range(draws)]
    at_random = [[places[at] for at in order[:count]] for count in masked_C for order in orders]
    asked = [[], *one, *alone, *together, *at_random]
    effects = Effects.of(subject, (_masked(subject.candidate(), each) for each in asked))
    bins_Q, low_X, high_X = _bins(effects.rows[0]["distance"])
    right_YX = np.stack([_right(rows, bins_Q) for rows in effects.rows])
    ends = np.cumsum([1, len(one), len(alone), len(together)])
    parts = zip(
        *(np.split(each, ends, axis=-1) for each in (effects.l50_3X, effects.loss_3X)), strict=True
    )
    (own_l50, own_loss), (one_l50, one_loss), _, (score_l50, score_loss), (any_l50, any_loss) = (
        parts
    )
    return KnockOut(
        retrieval_LN=retrieval_LN,
        longest=int(high_X[-1]),
        low_X=low_X,
        high_X=high_X,
        right_X=right_YX[0],
        alone_LNX=right_YX[ends[1] : ends[2]].reshape(L, N, -1),
        own_l50_3=own_l50[:, 0],
        own_loss_3=own_loss[:, 0],
        without_l50_3LN=one_l50.reshape(3, L, N),
        without_loss_3LN=one_loss.reshape(3, L, N),
        said_LN=effects.said_X[ends[0] : ends[1]].reshape(L, N),
        masked_C=masked_C,
        by_score_l50_3C=score_l50,
        by_score_loss_3C=score_loss,
        random_l50_CD=any_l50[0].reshape(-1, draws),
        random_loss_CD=any_loss[0].reshape(-1, draws),
    )


def _masked(candidate: Candidate, out: Iterable[tuple[int, int]]) -> Candidate:
    return candidate._replace(params=without_heads(candidate.params, out))


def _bins(distance_Q: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The bin of each question, and each bin's shortest and longest distance.

    An eighth of an octave, or as much wider as it takes to have enough questions.
    """
    fine, fine_Q, count = np.unique(
        fine_bin_number(distance_Q), return_inverse=True, return_counts=True
    )
    joined, last, asked = np.zeros(len(fine), int), 0, 0
    for at in range(len(fine)):
        joined[at], asked = last, asked + count[at]
        if asked >= _FEWEST and count[at + 1 :].sum() >= _FEWEST:
            last, asked = last + 1, 0
    bins_Q = joined[fine_Q]
    each = [distance_Q[bins_Q == at] for at in range(last + 1)]
    return bins_Q, np.array([d.min() for d in each]), np.array([d.max() for d in each])


def _right(rows: Rows, bins_Q: np.ndarray) -> np.ndarray:
    return np.bincount(bins_Q, rows["exact_match"]) / np.bincount(bins_Q)
