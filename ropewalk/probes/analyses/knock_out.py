"""Masking of heads: which heads a model needs.

Heads are masked one at a time; several at a time, in the order of their retrieval scores (Wu et al.
2024, arXiv 2404.15574; see `head_scores`) and in random orders; and all but one, which shows the
distances that the remaining head answers alone.
"""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from ropewalk.evals.estimate.bins import fine_bin_number, group_bins
from ropewalk.evals.rows import Rows
from ropewalk.model.transformer import without_heads
from ropewalk.probes.analyses.head_scores import retrieval
from ropewalk.probes.probe import HeadProbe, Number, draw_points, format_number
from ropewalk.probes.subject import Effects, Subject
from ropewalk.theory import capability
from ropewalk.utils.figures import DASHED, FAINT, INK, REFERENCE, handle, mark_handle, token_axis

_NUM_DRAWS = 4  # random orders of heads
_MAX_COUNTS = 6  # numbers of heads that are masked together
_MIN_QUESTIONS = 30  # of a bin of distances


class KnockOut(HeadProbe):
    """L50 without some heads, and the distances that each head answers alone.

    `_3...` are a value and the ends of its 95% interval over documents. L50 in tokens, as of
    `Effects`; loss of the answers to key-value recall, nats. X bins of distance of 30 questions or
    more; C numbers of masked heads, D random orders.

    Attributes:
      retrieval_LN: score that orders the heads; NaN if no question is answered correctly.
      longest: longest distance tested, tokens.
      low_X, high_X: shortest and longest distance of a bin, tokens.
      right_X: share of questions that the unchanged model answers correctly.
      alone_LNX: the same of each head, with the heads of all layers masked but this one.
      intact_l50_3, intact_loss_3: of the unchanged model.
      without_l50_3LN, without_loss_3LN: without one head.
      l50_text_LN: that L50 as text.
      masked_C: number of masked heads.
      by_score_l50_3C, by_score_loss_3C: without the heads of the highest scores.
      random_l50_3CD, random_loss_CD: without as many random heads.
    """

    title = "Effect of masking heads, and what each head answers alone"
    caption = """
    Above: share of questions that each head answers with all other heads masked (lines), and that
    the unchanged model answers (dots). Below: L50 without the heads of the highest retrieval scores
    (line, with 95% intervals over documents) and without as many random heads (small dots, four
    draws); dashed: the unchanged model. A line without a dot: undetermined within it; a cross at
    the bottom: not learned."""
    y_labels = "answered correctly", "L50 (tokens)"
    references = (
        mark_handle("all heads", "."),
        handle("masked by score,\n95% interval", marker="o", color=INK, lw=1.2),
        mark_handle("random heads masked", "o", color=FAINT, ms=3),
        handle("unchanged model", color=INK, lw=1, ls=DASHED),
    )

    @classmethod
    def measure(cls, subject: Subject) -> "KnockOut":
        """Mask heads and evaluate the model.

        Raises:
          ValueError: as `Subject.rows`.
        """
        retrieval_LN = retrieval(subject.capture, subject.questions, subject.is_right)[0]
        L, N = retrieval_LN.shape
        heads, random = list(np.ndindex(L, N)), np.random.default_rng(0)
        by_score = np.argsort(-np.nan_to_num(retrieval_LN.ravel()), kind="stable")
        orders = [by_score, *(random.permutation(L * N) for _ in range(_NUM_DRAWS))]
        masked_C = np.unique(np.geomspace(1, max(1, L * N - 1), _MAX_COUNTS).round().astype(int))
        intact = subject.candidate()

        def mask(masks: Sequence[Sequence[tuple[int, int]]]) -> Effects:
            params = (without_heads(intact.params, masked) for masked in masks)
            return subject.effects(intact._replace(params=p) for p in params)

        unchanged = mask([[]])
        single = mask([[head] for head in heads])
        alone = mask([[other for other in heads if other != head] for head in heads])
        together = mask([[heads[i] for i in order[:n]] for order in orders for n in masked_C])
        bins_Q, low_X, high_X = _bin_distances(unchanged.rows[0]["distance"])
        alone_YX = np.stack([_accuracy(rows, bins_Q) for rows in alone.rows])
        l50_3DC = together.l50_3X.reshape(3, len(orders), -1)
        loss_3DC = together.loss_3X.reshape(3, len(orders), -1)
        return cls(
            retrieval_LN=retrieval_LN,
            longest=int(high_X[-1]),
            low_X=low_X,
            high_X=high_X,
            right_X=_accuracy(unchanged.rows[0], bins_Q),
            alone_LNX=alone_YX.reshape(L, N, -1),
            intact_l50_3=unchanged.l50_3X[:, 0],
            intact_loss_3=unchanged.loss_3X[:, 0],
            without_l50_3LN=single.l50_3X.reshape(3, L, N),
            without_loss_3LN=single.loss_3X.reshape(3, L, N),
            l50_text_LN=single.l50_text_X.reshape(L, N),
            masked_C=masked_C,
            by_score_l50_3C=l50_3DC[:, 0],
            by_score_loss_3C=loss_3DC[:, 0],
            random_l50_3CD=l50_3DC[:, 1:].swapaxes(1, 2),
            random_loss_CD=loss_3DC[0, 1:].T,
        )

    def window(self, layer: int, head: int) -> list[tuple[int, int]]:
        """Return the distances (first, last) at which the head alone has accuracy .5 or more."""
        bins = capability.find_runs(np.flatnonzero(self.alone_LNX[layer, head] >= 0.5))
        return [(int(self.low_X[first]), int(self.high_X[last])) for first, last in bins]

    def numbers(self) -> dict[str, Number]:
        """Return L50, and shares of the distances, on a log scale, that single heads answer."""
        num_heads_X = (self.alone_LNX >= 0.5).sum(axis=(0, 1))
        octaves_X = np.log2((self.high_X + 1) / self.low_X)

        def share(selected_X: np.ndarray) -> Number:
            return Number(float((octaves_X * selected_X).sum() / octaves_X.sum()), largest=1)

        return {
            "L50, unchanged (tokens)": Number(*self.intact_l50_3),
            "L50 without the head of highest score (tokens)": Number(*self.by_score_l50_3C[:, 0]),
            "share of octaves that the model answers": share(self.right_X >= 0.5),
            "that exactly one head answers alone": share(num_heads_X == 1),
            "that several heads answer, each alone": share(num_heads_X > 1),
            "that the model answers and no head alone": share(
                (self.right_X >= 0.5) & (num_heads_X == 0)
            ),
        }

    def line(self, head: tuple[int, int]) -> dict[str, str]:
        """Return the effect of masking the head, and the distances that it answers alone."""
        loss, low, high = self.without_loss_3LN[:, *head]
        return {
            "retrieval score": format_number([Number(self.retrieval_LN[head])]),
            "L50 without it": str(self.l50_text_LN[head]),
            "loss without it [95% CI]": f"{loss:.2f} [{low:.2f}, {high:.2f}]",
            "alone answers": capability.format_runs(self.window(*head)),
        }

    def draw(self, axes: Sequence[Axes], color: str) -> None:
        """Draw windows above and masked heads below."""
        above, below = axes
        middle_X = np.sqrt(self.low_X * self.high_X)
        self.draw_curves(above, middle_X, self.alone_LNX)
        above.plot(middle_X, self.right_X, ".", color=INK, ms=4, zorder=4)
        above.axhline(0.5, **REFERENCE)
        above.set_ylim(-0.03, 1.03)
        token_axis(above.xaxis)
        above.set_xlabel("distance (tokens)")

        below.axhline(self.intact_l50_3[0], color=INK, lw=1, ls=DASHED)
        ticks, top = np.arange(len(self.masked_C)), 1.3 * self.longest
        value_3C = np.clip(self.by_score_l50_3C, 1, top)
        below.plot(ticks, value_3C[0], color=INK, lw=1.2)
        draw_points(below, ticks, value_3C, INK)
        random_3CD = np.clip(self.random_l50_3CD, 1, top)
        for order in range(random_3CD.shape[-1]):
            draw_points(below, ticks + 0.12 + 0.05 * order, random_3CD[..., order], FAINT, size=3)
        token_axis(below.yaxis)
        below.set_ylim(0.9, top)
        below.set_xticks(ticks, [f"{masked:.0f}" for masked in self.masked_C])
        below.set_xlim(-0.5, len(ticks) - 0.5)
        below.set_xlabel("heads masked")


def _bin_distances(distance_Q: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the bin of each question, and each bin's shortest and longest distance.

    A bin is an eighth of an octave, or wider until it has enough questions.
    """
    _, fine_Q, counts = np.unique(
        fine_bin_number(distance_Q), return_inverse=True, return_counts=True
    )
    bins_Q = group_bins(counts, _MIN_QUESTIONS)[fine_Q]
    distances = [distance_Q[bins_Q == index] for index in range(bins_Q.max() + 1)]
    return bins_Q, np.array([d.min() for d in distances]), np.array([d.max() for d in distances])


def _accuracy(rows: Rows, bins_Q: np.ndarray) -> np.ndarray:
    return np.bincount(bins_Q, rows["exact_match"]) / np.bincount(bins_Q)
