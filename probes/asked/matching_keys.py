"""What a matching key gains over one that does not, by distance: B(m), as the model has learned it.

A head scores the key k at distance m from the query q, through pair i of its features, by
Re z_i exp(i m inv_freq_i) with z_i = q_i conj(k_i). Averaged over questions, z of the keys that
match less z of those that do not makes a trigonometric series in m,

    gap(m) = sum_i a_i cos(m inv_freq_i) - b_i sin(m inv_freq_i),    a_i + i b_i = mean difference,

the bound B(m) of Men et al. 2024 (arXiv 2405.14591) with the model's own weights in place of equal
ones. The theory of one head's window (`theory.capability`) says which series reaches farthest.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from evals.estimate.bins import fine_bin_number
from probes.figures import COLORS, DASHES, first_column, head_handles, panels
from probes.inside import Capture
from probes.probe import INTERVAL, Number, Probe, complex_pairs, heads, resampled
from probes.questions import Questions
from probes.subject import Subject
from reporting.looks import FAINT, INK
from reporting.style import handle, token_axis
from theory import capability

_FEWEST = 30  # questions a dot stands for


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class MatchingKeys(Probe):
    """By how much the key that matches stands out at every distance, and where that ends.

    Of every layer and head; intervals are 95%, over documents.

    Attributes:
      inv_freq_LNR: radians per token.
      cosine_LNR, sine_LNR: a and -b of the series, in units of the logit.
      distances_M: 1, 2, ... tokens.
      gap_LNM, gap_low_LNM, gap_high_LNM: the series.
      sees_LM: whether a query of the layer sees that far at all, by its window.
      zero_LN, zero_low_LN, zero_high_LN: tokens, the first distance at which it is no longer
        positive, or not seen; inf if there is none among `distances_M`, 0 if it is not at 1 token.
      match_LNM: mean logit of a matching key, as a series.
      other_LN: mean logit of keys that do not match, wherever they stand.
      spread_LN: standard deviation of these around it.
      num_others: that a question could be mistaken for, on average.
      distance_Q, right_Q: of each question to its key, tokens; whether the model answers right.
    """

    title = "What a matching key gains, by distance"
    caption = """
    Above: by how many standard deviations a matching key scores above the other keys (d′), head by
    head; dashed, what it takes to be above all of them every other time; circles, where nothing of
    the advantage is left: the zero of the model's own B(m). Below: the accuracy each head would
    have by itself (lines), and what the model answers right (dots)."""
    by_default = True
    order = 0

    inv_freq_LNR: np.ndarray
    cosine_LNR: np.ndarray
    sine_LNR: np.ndarray
    distances_M: np.ndarray
    gap_LNM: np.ndarray
    gap_low_LNM: np.ndarray
    gap_high_LNM: np.ndarray
    sees_LM: np.ndarray
    zero_LN: np.ndarray
    zero_low_LN: np.ndarray
    zero_high_LN: np.ndarray
    match_LNM: np.ndarray
    other_LN: np.ndarray
    spread_LN: np.ndarray
    num_others: float
    distance_Q: np.ndarray
    right_Q: np.ndarray

    @classmethod
    def look(cls, subject: Subject) -> "MatchingKeys":
        """See `matching_keys`."""
        return matching_keys(*subject.asked, subject.is_right)

    @property
    def d_prime(self) -> np.ndarray:
        """By how many standard deviations a matching key stands above the others."""
        above_LNM = self.match_LNM - self.other_LN[..., None]
        return above_LNM / np.maximum(self.spread_LN, 1e-30)[..., None]

    @functools.cached_property
    def accuracy(self) -> np.ndarray:
        """How often it would be above all of them, were the others normal and independent."""
        accuracy_LNM = np.vectorize(capability.accuracy)(self.d_prime, self.num_others)
        return np.where(self.sees_LM[:, None], accuracy_LNM, 0)

    def alone(self, layer: int, head: int) -> list[tuple[int, int]]:
        """Distances (first, last) at which the head by itself would be right every other time."""
        places = np.flatnonzero(self.accuracy[layer, head] >= 0.5)
        runs = np.split(places, np.flatnonzero(np.diff(places) > 1) + 1) if len(places) else []
        return [(int(self.distances_M[run[0]]), int(self.distances_M[run[-1]])) for run in runs]

    def window(self, layer: int, head: int) -> tuple[int, float]:
        """The window filter that is most like the head's own: its length in tokens, the cosine.

        The window filter of a length tells keys apart at every distance up to it as well as the
        frequencies allow.
        """
        own_W = np.concatenate([self.cosine_LNR[layer, head], -self.sine_LNR[layer, head]])
        lengths = np.unique(np.geomspace(1, self.distances_M[-1], 48).astype(int))
        f_MW = capability.responses(self.inv_freq_LNR[layer, head], self.distances_M)
        best_CW = np.stack([capability.nearest_point(f_MW[:length]) for length in lengths])
        norms_C = np.linalg.norm(best_CW, axis=1) * np.linalg.norm(own_W)
        cosines_C = best_CW @ own_W / np.maximum(norms_C, 1e-30)
        best = int(np.argmax(cosines_C))
        return int(lengths[best]), float(cosines_C[best])

    def numbers(self) -> dict[str, Number]:
        """The farthest zero of a head, and where no head is right by itself any more."""
        farthest = np.unravel_index(self.zero_LN.argmax(), self.zero_LN.shape)
        low, high = self.zero_low_LN[farthest], self.zero_high_LN[farthest]
        below_M = self.accuracy.max(axis=(0, 1)) < 0.5
        alone = self.distances_M[below_M.argmax()] if below_M.any() else math.inf
        return {
            "zero of B(m), farthest head (tokens)": Number(self.zero_LN[farthest], low, high),
            "no head is right every other time from (tokens)": Number(float(alone)),
            "answered right": Number(float(self.right_Q.mean())),
        }

    def lines(self) -> list[dict[str, str]]:
        """A line a head."""
        return [self._line(layer, head) for layer, head in heads(self.zero_LN)]

    def _line(self, layer: int, head: int) -> dict[str, str]:
        zero, low, high = (
            self._tokens(each[layer, head])
            for each in (self.zero_LN, self.zero_low_LN, self.zero_high_LN)
        )
        length, cosine = self.window(layer, head)
        alone = ", ".join(f"{first}-{last}" for first, last in self.alone(layer, head))
        return {
            "layer": str(layer),
            "head": str(head),
            "advantage ends [95% CI]": f"{zero} [{low}, {high}]",
            "like a window of": f"{length} (cosine {cosine:.2f})",
            "alone answers": alone or "nothing",
        }

    def _tokens(self, distance: float) -> str:
        return f"> {self.distances_M[-1]}" if math.isinf(distance) else f"{distance:.3g}"

    @classmethod
    def plot(cls, found: Mapping[str, Sequence["MatchingKeys"]]) -> Figure:
        """d′ above, accuracy below; of several seeds the first, for heads have no common order."""
        figure, axes = panels(list(found), rows=2, sharex=True)
        for (above, below), (first, *_) in zip(axes, found.values(), strict=True):
            first._draw(above, below)
        for above, below in first_column(axes):
            above.set_ylabel("d′ of the matching key")
            below.set_ylabel("accuracy")
        figure.supxlabel("distance to the matching key (tokens, log scale)", fontsize=10)
        figure.legend(
            handles=[
                *head_handles(seeds[0].zero_LN for seeds in found.values()),
                handle("what half-right needs", color=INK, lw=1, ls=DASHES),
                handle("no advantage left", marker="o", mfc="white", mec=INK, ls="none"),
                handle("answered right", marker=".", color=INK, ls="none"),
            ],
            loc="outside right center",
        )
        return figure

    def _draw(self, above: Axes, below: Axes) -> None:
        places = heads(self.zero_LN)
        for (layer, head), color in zip(places, COLORS * len(places), strict=False):
            above.plot(self.distances_M, self.d_prime[layer, head], color=color, lw=1.4)
            zero = self.zero_LN[layer, head]
            if 0 < zero < math.inf:
                above.plot(zero, 0, "o", mfc="white", mec=color, zorder=5)
            below.plot(self.distances_M, self.accuracy[layer, head], color=color, lw=1.2)
        needed = capability.needed(max(1, round(self.num_others)))
        above.axhline(needed, color=INK, lw=1, ls=DASHES)
        above.axhline(0, color=FAINT, lw=0.8)
        self._measured(below)
        below.set_xscale("log", base=2)
        token_axis(below.xaxis, num_ticks=8)
        below.set_ylim(-0.03, 1.03)

    def _measured(self, ax: Axes) -> None:
        """Dots of an eighth of an octave, or as much wider as it takes to have enough questions."""
        order = np.argsort(self.distance_Q)
        bins = np.flatnonzero(np.diff(fine_bin_number(self.distance_Q[order]))) + 1
        start = 0
        for stop in [*bins.tolist(), len(order)]:
            if stop - start >= _FEWEST:
                chosen = order[start:stop]
                middle = np.exp(np.log(self.distance_Q[chosen]).mean())
                ax.plot(middle, self.right_Q[chosen].mean(), ".", color=INK, ms=5, zorder=4)
                start = stop


def matching_keys(inside: Capture, questions: Questions, right_Q: np.ndarray) -> MatchingKeys:
    """What every head's matching keys gain, from the queries and keys of some questions.

    Args:
      inside, questions: as `probes.questions.ask` gives them.
      right_Q: which of them the model answers right.

    Raises:
      ValueError: without questions, or where none has a key it could be mistaken for.
    """
    inv_freq_LNR = capability.of_heads(inside.table().inv_freq, inside.config.num_heads)
    distances_M = np.arange(1, inside.length)
    layers = []
    for layer, inv_freq_NR in enumerate(inv_freq_LNR):
        found = sums(inside, questions, layer, inv_freq_NR)
        layers.append(_of_layer(found, inv_freq_NR, inside.sees(layer, distances_M)))
    return MatchingKeys(
        inv_freq_LNR=inv_freq_LNR,
        distances_M=distances_M,
        num_others=float(questions.others().sum(axis=1).mean()),
        distance_Q=questions.distances,
        right_Q=right_Q,
        **{name: np.stack([each[name] for each in layers]) for name in layers[0]},
    )


class Sums(NamedTuple):
    """Over the questions of each document, B of them; of one layer.

    Attributes:
      match_BNR, other_BNR: complex; z of keys that match, and of those that do not.
      num_match_B, num_other_B: how many.
      logit_BN, square_BN: logits of keys that do not match, and their squares.
    """

    match_BNR: np.ndarray
    other_BNR: np.ndarray
    num_match_B: np.ndarray
    num_other_B: np.ndarray
    logit_BN: np.ndarray
    square_BN: np.ndarray

    def means(self, weights_CB: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """z of matching keys, and by how much it is more than the others', complex `[C, N, R]`.

        `weights_CB` is how often each document counts, in each of C draws.
        """
        match_CNR = np.einsum("cb,bnr->cnr", weights_CB, self.match_BNR)
        other_CNR = np.einsum("cb,bnr->cnr", weights_CB, self.other_BNR)
        match_CNR /= (weights_CB @ self.num_match_B)[:, None, None]
        other_CNR /= (weights_CB @ self.num_other_B)[:, None, None]
        return match_CNR, match_CNR - other_CNR


def sums(inside: Capture, questions: Questions, layer: int, inv_freq_NR: np.ndarray) -> Sums:
    """What z and logits of matching and other keys add up to, document by document.

    Raises:
      ValueError: without questions, or where none has a key it could be mistaken for.
    """
    if not len(questions.row_Q) or not questions.others().any():
        raise ValueError("no question with another key before it: ask more or longer documents")
    q_BTNH, k_BSKH = (np.asarray(each, np.float64) for each in inside.rotated(layer))
    k_BSNH = np.repeat(k_BSKH, q_BTNH.shape[2] // k_BSKH.shape[2], axis=2)
    q_BTNR, k_BSNR = complex_pairs(q_BTNH), complex_pairs(k_BSNH)
    others_QP = questions.others()
    found = []
    for row in range(len(q_BTNR)):
        mine = (questions.row_Q == row) & inside.sees(layer, questions.distances)
        t_Q, s_Q, s_P = questions.query_Q[mine], questions.key_Q[mine], questions.pairs_BP[row]
        is_other_QP = others_QP[mine] & inside.sees(layer, t_Q[:, None] - s_P)
        is_other_QP = is_other_QP.astype(float)
        q_QNR, match_QNR, k_PNR = q_BTNR[row, t_Q], k_BSNR[row, s_Q], k_BSNR[row, s_P]
        logits_NQP = np.einsum("qnr,pnr->nqp", q_QNR, k_PNR.conj()).real
        # Turned back: what is left of a pair knows no distance.
        q_QNR = q_QNR * _turn(-t_Q, inv_freq_NR)
        match_QNR = match_QNR * _turn(-s_Q, inv_freq_NR)
        k_PNR = k_PNR * _turn(-s_P, inv_freq_NR)
        found.append(
            (
                np.einsum("qnr,qnr->nr", q_QNR, match_QNR.conj()),
                np.einsum("qp,qnr,pnr->nr", is_other_QP, q_QNR, k_PNR.conj(), optimize=True),
                mine.sum(),
                is_other_QP.sum(),
                np.einsum("qp,nqp->n", is_other_QP, logits_NQP),
                np.einsum("qp,nqp->n", is_other_QP, logits_NQP**2),
            )
        )
    return Sums(*map(np.stack, zip(*found, strict=True)))


def _turn(positions: np.ndarray, inv_freq_NR: np.ndarray) -> np.ndarray:
    return np.exp(1j * positions[:, None, None] * inv_freq_NR)


def _of_layer(found: Sums, inv_freq_NR: np.ndarray, sees_M: np.ndarray) -> dict[str, np.ndarray]:
    """The fields of `MatchingKeys` that differ by layer."""
    num_documents = len(found.num_match_B)
    turns_NRM = np.exp(1j * inv_freq_NR[..., None] * np.arange(1, len(sees_M) + 1))

    def series(z_CNR: np.ndarray) -> np.ndarray:
        return np.einsum("cnr,nrm->cnm", z_CNR, turns_NRM, optimize=True).real

    drawn_CB = resampled(num_documents)
    match_1NR, gap_1NR = found.means(np.ones((1, num_documents)))
    gaps_CNM = series(found.means(drawn_CB)[1])
    gap_NM = series(gap_1NR)[0]
    low_NM, high_NM = np.percentile(gaps_CNM, INTERVAL, axis=0)
    # Without interpolation: between a distance and "none" there is no number.
    low_N, high_N = np.percentile(_zero(gaps_CNM * sees_M), INTERVAL, axis=0, method="nearest")
    num_others = found.num_other_B.sum()
    other_N = found.logit_BN.sum(axis=0) / num_others
    return {
        "cosine_LNR": gap_1NR[0].real,
        "sine_LNR": -gap_1NR[0].imag,
        "gap_LNM": gap_NM,
        "gap_low_LNM": low_NM,
        "gap_high_LNM": high_NM,
        "sees_LM": sees_M,
        "zero_LN": _zero(gap_NM * sees_M),
        "zero_low_LN": low_N,
        "zero_high_LN": high_N,
        "match_LNM": series(match_1NR)[0],
        "other_LN": other_N,
        "spread_LN": np.sqrt(np.maximum(found.square_BN.sum(axis=0) / num_others - other_N**2, 0)),
    }


def _zero(gap_XM: np.ndarray) -> np.ndarray:
    """Where a series from distance 1 on is first 0 or less, between distances; of each row."""
    is_down_XM = gap_XM <= 0
    first_X = is_down_XM.argmax(axis=-1)
    after_X = np.take_along_axis(gap_XM, first_X[..., None], -1)[..., 0]
    before_X = np.take_along_axis(gap_XM, np.maximum(first_X - 1, 0)[..., None], -1)[..., 0]
    between_X = first_X + before_X / np.maximum(before_X - after_X, 1e-30)
    found_X = np.where(first_X == 0, 0.0, between_X)
    return np.where(is_down_XM.any(axis=-1), found_X, np.inf)
