"""The logit gap of a matching key over other keys, by distance: the empirical B(m).

A head scores the key k at distance m from the query q, through pair i of its features, by
Re z_i exp(i m inv_freq_i) with z_i = q_i conj(k_i). Averaged over questions, z of the matching keys
less z of the others defines a trigonometric series in m,

    gap(m) = sum_i a_i cos(m inv_freq_i) - b_i sin(m inv_freq_i),    a_i + i b_i = mean difference,

the bound B(m) of Men et al. 2024 (arXiv 2405.14591) with the model's weights in place of equal
ones. `theory.capability` gives the series that is positive up to the longest distance.
"""

import functools
import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from matplotlib.axes import Axes

from ropewalk.evals.estimate.bins import fine_bin_number
from ropewalk.probes.capturing import Capture, complex_pairs
from ropewalk.probes.probe import NOT_MEASURED, HeadProbe, Number
from ropewalk.probes.questions import Questions
from ropewalk.probes.resample import bootstrap_counts, with_interval
from ropewalk.probes.subject import Subject
from ropewalk.theory import capability
from ropewalk.utils.figures import DASHED, FAINT, INK, handle, mark_handle, token_axis

ZERO = "zero of the empirical B(m), largest over heads (tokens)"
BEST_HEAD = "distance where the best head's accuracy falls below .5 (tokens)"
_MIN_QUESTIONS = 30  # of a dot


class MatchingKeys(HeadProbe):
    """Logit gap of the matching key at every distance, and the distance at which it vanishes.

    For every layer and head; intervals are 95%, over documents.

    Attributes:
      inv_freq_LNR: radians per token.
      cosine_LNR, sine_LNR: a and -b of the series, in units of the logit.
      distances_M: 1, 2, ... tokens.
      gap_LNM, gap_low_LNM, gap_high_LNM: the series.
      visible_LM: whether a query of the layer attends to this distance, given its window.
      zero_LN, zero_low_LN, zero_high_LN: tokens, the first distance at which the gap is not
        positive, or masked; inf if there is none among `distances_M`, 0 if it is distance 1. NaN,
        as is all that follows from the gap, if the layer's window hides the key of every question,
        or all other keys.
      match_LNM: mean logit of a matching key, as a series.
      other_LN: mean logit of keys that do not match, over all distances.
      spread_LN: their standard deviation.
      num_others_L: mean number of distractors in the window of a question whose key is in it.
      distance_Q, right_Q: of each question, tokens to its key; whether the answer is correct.
    """

    title = "Logit gap of the matching key, by distance"
    caption = """
    Above: d′ of each head, the number of standard deviations by which a matching key scores above
    the other keys; dashed: d′ needed for accuracy .5; crosses: zeros of the empirical B(m), where
    the gap vanishes. Below: accuracy of each head alone, computed from d′ (lines), and of the model
    (dots)."""
    by_default = True
    order = 0
    sentences: ClassVar = {
        ZERO: "{head} tells keys apart up to {value} tokens|"
        "{head} tells keys apart at every distance",
        BEST_HEAD: "no head alone finds half of the keys from {value} tokens on|"
        "one head or another finds half of the keys at every distance",
        "answered correctly": "the model answers {value} of the questions",
    }
    y_labels = "d′ of the matching key", "accuracy"
    x_label = "distance to the matching key (tokens, log scale)"
    references = (
        handle("d′ needed for\naccuracy .5", color=INK, lw=1, ls=DASHED),
        mark_handle("zero of B(m)", "P"),
        mark_handle("model", "."),
    )

    @classmethod
    def measure(cls, subject: Subject) -> "MatchingKeys":
        """Measure the gap of every head from the captured questions.

        Raises:
          ValueError: if there is no question with a distractor.
        """
        captured, questions = subject.capture, subject.questions
        layers = range(captured.config.num_layers)
        return cls.from_layers(
            [_layer_fields(captured, questions, layer) for layer in layers],
            inv_freq_LNR=captured.inv_freq,
            distances_M=np.arange(1, captured.length),
            distance_Q=questions.distances,
            right_Q=subject.is_right,
        )

    @property
    def zeros(self) -> np.ndarray:
        """The zero of each head and the ends of its interval, `[3, L, N]`, tokens."""
        return np.stack([self.zero_LN, self.zero_low_LN, self.zero_high_LN])

    @property
    def d_prime(self) -> np.ndarray:
        """Gap between a matching key and the mean of the others, standard deviations."""
        gap_LNM = self.match_LNM - self.other_LN[..., None]
        return gap_LNM / np.maximum(self.spread_LN, 1e-30)[..., None]

    @functools.cached_property
    def accuracy(self) -> np.ndarray:
        """Probability that the matching key scores highest among independent normal scores."""
        others_L11 = self.num_others_L[:, None, None]
        accuracy_LNM = np.vectorize(capability.accuracy, otypes=[float])(self.d_prime, others_L11)
        return accuracy_LNM * self.visible_LM[:, None]  # NaN stays

    def alone(self, layer: int, head: int) -> list[tuple[int, int]]:
        """Return the distances (first, last) at which the head's accuracy is .5 or more."""
        return list(capability.find_runs(self.distances_M[self.accuracy[layer, head] >= 0.5]))

    def numbers(self) -> dict[str, Number]:
        """Return the largest zero, where the best head fails, and the accuracy of the model."""
        best_M = self.accuracy[~self.is_unmeasured].max(axis=0, initial=-1)
        end = math.nan if self.is_unmeasured.all() else self._first(best_M < 0.5)
        return {
            ZERO: self.highest(self.zeros),
            BEST_HEAD: Number(end),
            "answered correctly": Number(float(self.right_Q.mean()), largest=1),
        }

    def line(self, head: tuple[int, int]) -> dict[str, str]:
        """Return the zero, the distances that the head answers alone, and how far d′ reaches."""
        names = "zero of B(m) [95% CI]", "alone answers", "highest d′", "halves at"
        if self.is_unmeasured[head]:
            return dict.fromkeys(names, NOT_MEASURED)
        zero, low, high = map(self._format_distance, self.zeros[:, *head])
        d_prime_M = self.d_prime[head]
        top = d_prime_M.argmax()
        is_after_M = np.arange(len(d_prime_M)) >= top
        half = self._first(is_after_M & (d_prime_M < d_prime_M[top] / 2))
        cells = f"{zero} [{low}, {high}]", capability.format_runs(self.alone(*head))
        cells += f"{d_prime_M[top]:.2f}", self._format_distance(half)
        return dict(zip(names, cells, strict=True))

    @property
    def is_unmeasured(self) -> np.ndarray:
        """Which heads have no gap, `[L, N]`."""
        return np.all(np.isnan(self.d_prime), axis=-1)

    def _first(self, is_reached_M: np.ndarray) -> float:
        """Return the first distance that is marked, inf if there is none."""
        return float(self.distances_M[is_reached_M.argmax()]) if is_reached_M.any() else math.inf

    def _format_distance(self, distance: float) -> str:
        if math.isnan(distance):
            return "–"
        return f"> {self.distances_M[-1]}" if math.isinf(distance) else f"{distance:.3g}"

    def draw(self, axes: Sequence[Axes], color: str) -> None:
        """Draw d′ above and accuracy below."""
        above, below = axes
        self.draw_curves(above, self.distances_M, self.d_prime)
        self.draw_curves(below, self.distances_M, self.accuracy, lw=1.2)
        for head, color in self.colors:
            if 0 < self.zero_LN[head] < math.inf:
                above.plot(self.zero_LN[head], 0, "P", color=color, zorder=5)
        for num_others in np.unique(
            np.maximum(1, self.num_others_L[self.num_others_L > 0].round())
        ):
            required = capability.required_capability(int(num_others))
            above.axhline(required, color=INK, lw=1, ls=DASHED)
        above.axhline(0, color=FAINT, lw=0.8)
        self._draw_model(below)
        token_axis(below.xaxis)
        below.set_ylim(-0.03, 1.03)

    def _draw_model(self, ax: Axes) -> None:
        """Draw a dot per eighth of an octave, or per wider bin until it has enough questions."""
        order = np.argsort(self.distance_Q)
        bins = np.flatnonzero(np.diff(fine_bin_number(self.distance_Q[order]))) + 1
        start = 0
        for stop in [*bins.tolist(), len(order)]:
            if stop - start >= _MIN_QUESTIONS:
                selected = order[start:stop]
                middle = np.exp(np.log(self.distance_Q[selected]).mean())
                ax.plot(middle, self.right_Q[selected].mean(), ".", color=INK, ms=5, zorder=4)
                start = stop


def measure_gap(captured: Capture, questions: Questions, layer: int) -> tuple[np.ndarray, ...]:
    """Compare the matching keys of a layer with the others.

    Returns:
      match_CNR, gap_CNR: complex; mean z of matching keys, and its difference to that of the other
        keys, in each of C samples of documents (`bootstrap_counts`).
      other_N, spread_N: mean logit of the other keys, and their standard deviation.
      num_others: mean number of these keys of a question.

    Only questions whose key is in the layer's window count, and other keys in it. Without any, all
    is NaN.

    Raises:
      ValueError: if there is no question with a distractor.
    """
    distractors_QT = questions.distractors()
    if not distractors_QT.any():
        raise ValueError("no question follows another key: use more or longer documents")
    phases_TNR = np.exp(-1j * np.arange(captured.length)[:, None, None] * captured.inv_freq[layer])
    is_seen_Q = captured.is_visible(questions.distances, layer)
    documents = []
    for row, (q_TNR, k_SNR) in enumerate(
        zip(*complex_pairs(*captured.rotated(layer)), strict=True)
    ):
        in_row = (questions.row_Q == row) & is_seen_Q
        t_Q, s_Q = questions.query_Q[in_row], questions.key_Q[in_row]
        s_P = np.flatnonzero(questions.is_value_BT[row])
        is_other_QP = (
            captured.is_visible(t_Q[:, None] - s_P, layer) & distractors_QT[in_row][:, s_P]
        )
        is_other_QP = is_other_QP.astype(float)
        logits_NQP = np.einsum("qnr,pnr->nqp", q_TNR[t_Q], k_SNR[s_P].conj()).real
        # Undo the rotation, so that z does not depend on the distance.
        q_QNR, k_SNR = (q_TNR * phases_TNR)[t_Q], (k_SNR * phases_TNR).conj()
        documents.append(
            (
                np.einsum("qnr,qnr->nr", q_QNR, k_SNR[s_Q]),
                np.einsum("qp,qnr,pnr->nr", is_other_QP, q_QNR, k_SNR[s_P], optimize=True),
                in_row.sum(),
                is_other_QP.sum(),
                np.einsum("qp,nqp->n", is_other_QP, logits_NQP),
                np.einsum("qp,nqp->n", is_other_QP, logits_NQP**2),
            )
        )
    match_BNR, other_BNR, num_match_B, num_other_B, logit_BN, square_BN = map(
        np.stack, zip(*documents, strict=True)
    )
    weights_CB = bootstrap_counts(len(documents))
    match_CNR = np.einsum("cb,bnr->cnr", weights_CB, match_BNR)
    other_CNR = np.einsum("cb,bnr->cnr", weights_CB, other_BNR)
    with np.errstate(invalid="ignore"):  # 0 / 0
        match_CNR /= (weights_CB @ num_match_B)[:, None, None]
        other_CNR /= (weights_CB @ num_other_B)[:, None, None]
        other_N = logit_BN.sum(axis=0) / num_other_B.sum()
        spread_N = np.sqrt(np.maximum(square_BN.sum(axis=0) / num_other_B.sum() - other_N**2, 0))
        num_others = num_other_B.sum() / num_match_B.sum()
    return match_CNR, match_CNR - other_CNR, other_N, spread_N, num_others


def _layer_fields(captured: Capture, questions: Questions, layer: int) -> dict[str, np.ndarray]:
    """Return the fields of `MatchingKeys` that differ by layer."""
    match_CNR, gap_CNR, other_N, spread_N, num_others = measure_gap(captured, questions, layer)
    distances_M = np.arange(1, captured.length)
    phases_NRM = np.exp(1j * captured.inv_freq[layer][..., None] * distances_M)

    def series(z_CNR: np.ndarray) -> np.ndarray:
        return np.einsum("cnr,nrm->cnm", z_CNR, phases_NRM, optimize=True).real

    gap_CNM, visible_M = series(gap_CNR), captured.is_visible(distances_M, layer)
    gap_NM, low_NM, high_NM = with_interval(gap_CNM)
    zero_CN = np.where(np.isnan(gap_CNM[..., 0]), np.nan, _first_zero(gap_CNM * visible_M))
    zero_N, low_N, high_N = with_interval(zero_CN, "nearest")
    return {
        "cosine_LNR": gap_CNR[0].real,
        "sine_LNR": -gap_CNR[0].imag,
        "gap_LNM": gap_NM,
        "gap_low_LNM": low_NM,
        "gap_high_LNM": high_NM,
        "visible_LM": visible_M,
        "zero_LN": zero_N,
        "zero_low_LN": low_N,
        "zero_high_LN": high_N,
        "match_LNM": series(match_CNR[:1])[0],
        "other_LN": other_N,
        "spread_LN": spread_N,
        "num_others_L": num_others,
    }


def _first_zero(gap_XM: np.ndarray) -> np.ndarray:
    """Return where series from distance 1 first reach 0, interpolated between distances."""
    is_down_XM = gap_XM <= 0
    first_X = is_down_XM.argmax(axis=-1)
    after_X = np.take_along_axis(gap_XM, first_X[..., None], -1)[..., 0]
    before_X = np.take_along_axis(gap_XM, np.maximum(first_X - 1, 0)[..., None], -1)[..., 0]
    between_X = first_X + before_X / np.maximum(before_X - after_X, 1e-30)
    zero_X = np.where(first_X == 0, 0.0, between_X)
    return np.where(is_down_XM.any(axis=-1), zero_X, np.inf)
