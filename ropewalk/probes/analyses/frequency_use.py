"""Use of frequencies: the norms of queries and keys in each pair, and each pair's logit gap.

- Norms (Barbero et al. 2024, arXiv 2410.06205): the 2-norm of a pair's two features, of queries and
  of keys, mean over tokens. Rotation does not change it.
- Gap: a pair's contribution to the logit of the matching key less that of other keys, by distance:
  the term a_i cos(m inv_freq_i) - b_i sin(m inv_freq_i) of `matching_keys`' series, of amplitude
  sqrt(a_i² + b_i²). Its signed share is relative to the sum of the terms' absolute values.
- Massive features (Jin et al. 2025, arXiv 2502.01563): features of a head's queries or keys whose
  2-norm over all tokens exceeds 5 times the mean of the head's features.
"""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize

from ropewalk.probes.analyses.matching_keys import measure_gap
from ropewalk.probes.capturing import complex_pairs
from ropewalk.probes.probe import NOT_MEASURED, HeadProbe, Number, format_number, head_name
from ropewalk.probes.resample import bootstrap_counts, with_interval
from ropewalk.probes.subject import Subject
from ropewalk.utils.figures import DASHED, FAINT, INK, PAPER, SIGNED, handle, token_axis

_HALF_GAIN = "period up to which pairs have half of the gap (tokens)"
_HALF_NORM = "period up to which pairs have half of the norms (tokens)"
_MASSIVE = 5  # times the mean
_MAX_HEADS = 8  # heads in the lower panel
_SCALE = Normalize(-0.2, 0.2)


class FrequencyUse(HeadProbe):
    """Norms of queries and keys in each pair, and each pair's share of the matching key's gap.

    For every layer and head; `_3LNR` are a value and the ends of its 95% interval over documents.

    Attributes:
      inv_freq_LNR: radians per token.
      query_3LNR, key_3LNR: mean 2-norm of a pair, in units of the features before any scale.
      cosine_LNR, sine_LNR: a and -b of the matching key's gap, in units of the logit.
      amplitude_3LNR: amplitude of that gap; noise alone has an amplitude above 0.
      massive_query_LNH, massive_key_LKH: bool, massive features of query and of key heads.
      distances_M: 1, 2, ... tokens.
      visible_LM: whether a query of the layer attends to this distance, given its window.
      half_norm_3, half_gain_3: the period in tokens up to which pairs have half of the norms'
        product, and of the amplitudes, of all heads; inf if unrotated pairs have more, NaN if all
        are 0 or not measured.
    """

    title = "Use of frequencies"
    caption = """
    Above: mean 2-norm of queries (solid) and keys (dashed) in each pair of a head's features, from
    the fastest to the slowest, with 95% intervals over documents. Below: each pair's contribution
    to the matching key's logit gap at a distance, as a share of the sum of all pairs' absolute
    terms; one block per head, its fastest pair on top. With more than eight heads, those of the
    largest amplitudes."""
    by_default = True
    sentences: ClassVar = {
        _HALF_GAIN: "pairs of periods up to {value} tokens have half of the logit gap|"
        "pairs that do not rotate have half of the logit gap",
        _HALF_NORM: "pairs of periods up to {value} tokens have half of the norms|"
        "pairs that do not rotate have half of the norms",
        "massive features of queries and keys": "{value} features of queries and keys are massive",
    }
    y_labels = "2-norm of a pair", "pairs of each head"
    references = (
        handle("queries", color=INK, lw=1.4),
        handle("keys", color=INK, lw=1.4, ls=DASHED),
    )
    color_scale = ScalarMappable(_SCALE, SIGNED), "share of the logit gap"

    @classmethod
    def measure(cls, subject: Subject) -> "FrequencyUse":
        """Measure the use of each frequency from the captured questions.

        Raises:
          ValueError: if there is no question with a distractor.
        """
        captured, inv_freq_LNR = subject.capture, subject.capture.inv_freq
        weights_CB = bootstrap_counts(len(captured.tokens_BT))
        layers = range(captured.config.num_layers)
        gaps_CNR = [measure_gap(captured, subject.questions, layer)[1] for layer in layers]
        gap_CLNR = np.stack(gaps_CNR, axis=1)
        amplitude_CLNR, distances_M = np.abs(gap_CLNR), np.arange(1, captured.length)
        unrotated = (complex_pairs(*captured.unrotated(layer)) for layer in layers)
        norms = [[*_norms(q_BTNR), *_norms(k_BSNR)] for q_BTNR, k_BSNR in unrotated]
        query_LBNR, massive_query_LNH, key_LBNR, massive_key_LNH = map(
            np.stack, zip(*norms, strict=True)
        )
        num_sharing = captured.config.num_heads // captured.activations.k_LBSKH.shape[3]
        query_CLNR, key_CLNR = (
            np.einsum("cb,lbnr->clnr", weights_CB, x_LBNR, optimize=True) / x_LBNR.shape[1]
            for x_LBNR in (query_LBNR, key_LBNR)
        )
        return cls(
            inv_freq_LNR=inv_freq_LNR,
            query_3LNR=with_interval(query_CLNR, "nearest"),
            key_3LNR=with_interval(key_CLNR, "nearest"),
            cosine_LNR=gap_CLNR[0].real,
            sine_LNR=-gap_CLNR[0].imag,
            amplitude_3LNR=with_interval(amplitude_CLNR, "nearest"),
            massive_query_LNH=massive_query_LNH,
            massive_key_LKH=massive_key_LNH[:, ::num_sharing],
            distances_M=distances_M,
            visible_LM=captured.is_visible(distances_M),
            half_norm_3=with_interval(_half_period(inv_freq_LNR, query_CLNR * key_CLNR), "nearest"),
            half_gain_3=with_interval(_half_period(inv_freq_LNR, amplitude_CLNR), "nearest"),
        )

    def share(self, head: tuple[int, int]) -> np.ndarray:
        """Return each pair's signed share of a (layer, head)'s gap, `[R, M]`; NaN if masked."""
        angles_RM = self.inv_freq_LNR[head][:, None] * self.distances_M
        terms_RM = self.cosine_LNR[head][:, None] * np.cos(angles_RM)
        terms_RM += self.sine_LNR[head][:, None] * np.sin(angles_RM)
        with np.errstate(invalid="ignore"):  # 0 / 0: no pair contributes
            share_RM = terms_RM / np.abs(terms_RM).sum(axis=0)
        return np.where(self.visible_LM[head[0]], share_RM, np.nan)

    def numbers(self) -> dict[str, Number]:
        """Return numbers over all heads together."""
        massive = self.massive_query_LNH.sum() + self.massive_key_LKH.sum()
        return {
            _HALF_GAIN: Number(*self.half_gain_3),
            _HALF_NORM: Number(*self.half_norm_3),
            "massive features of queries and keys": Number(float(massive)),
        }

    def line(self, head: tuple[int, int]) -> dict[str, str]:
        """Return the pairs of largest norms and amplitude, and the massive features."""
        (layer, number), inv_freq_R = head, self.inv_freq_LNR[head]
        norms_R = self.query_3LNR[0][head] * self.key_3LNR[0][head]
        amplitude_3R = self.amplitude_3LNR[:, *head]
        num_sharing = self.shape[1] // self.massive_key_LKH.shape[1]
        massive_keys = self.massive_key_LKH[layer, number // num_sharing].sum()
        return {
            "pair of largest norms": _format_largest(norms_R, inv_freq_R),
            "pair of largest amplitude": _format_largest(amplitude_3R[0], inv_freq_R),
            "amplitude [95% CI]": format_number(
                [Number(*amplitude_3R[:, amplitude_3R[0].argmax()])]
            ),
            "massive features": f"{self.massive_query_LNH[head].sum()} of queries, "
            f"{massive_keys} of keys",
        }

    def draw(self, axes: Sequence[Axes], color: str) -> None:
        """Draw norms above and shares below."""
        above, below = axes
        pairs_R = np.arange(self.inv_freq_LNR.shape[-1])
        self.draw_curves(above, pairs_R, self.query_3LNR, lw=1.2)
        self.draw_curves(above, pairs_R, self.key_3LNR, lw=1.2, ls=DASHED)
        ticks = np.unique(np.linspace(0, pairs_R[-1], 4).round().astype(int))
        labels = [f"{t}\n{_format_period(self.inv_freq_LNR[0, 0, t])}" for t in ticks]
        above.set_xticks(ticks, labels, fontsize=7)
        above.set_xlabel("pair\nperiod (tokens)")
        above.set_ylim(bottom=0)

        amplitude_LN = self.amplitude_3LNR[0].sum(axis=-1)
        by_amplitude = sorted(self.heads, key=lambda head: -amplitude_LN[head])
        drawn, R = sorted(by_amplitude[:_MAX_HEADS]), len(pairs_R)
        shares = np.concatenate([self.share(head) for head in drawn])
        edges_M = np.append(self.distances_M, self.distances_M[-1] + 1) - 0.5
        edges_R = np.arange(len(shares) + 1)
        cells = below.pcolormesh(edges_M, edges_R, shares, cmap=SIGNED, norm=_SCALE)
        cells.set_rasterized(True)
        for line in range(R, len(shares), R):
            below.axhline(line, color=PAPER, lw=1.5)
            below.axhline(line, color=FAINT, lw=0.5)
        prefix = "head " if self.shape[0] == 1 else ""
        names = [prefix + head_name(self.shape, head) for head in drawn]
        below.set_yticks(R * (np.arange(len(drawn)) + 0.5), names, fontsize=7)
        below.invert_yaxis()
        token_axis(below.xaxis)
        below.set_xlim(left=1)
        below.set_xlabel("distance (tokens)")


def _format_period(inv_freq: float) -> str:
    return f"{float(f'{2 * np.pi / abs(inv_freq):.3g}'):,.10g}" if inv_freq else "–"


def _format_largest(value_R: np.ndarray, inv_freq_R: np.ndarray) -> str:
    """Return the pair of the largest value as text."""
    pair = value_R.argmax()
    if not value_R[pair] > 0:  # NaN too
        return NOT_MEASURED
    if inv_freq_R[pair] == 0:
        return f"{pair} (unrotated)"
    return f"{pair} (period {_format_period(inv_freq_R[pair])})"


def _norms(x_BTNR: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each pair's mean 2-norm in a document, `[B, N, R]`, and massive features, `[N, H]`."""
    x_BTNH = np.concatenate([np.real(x_BTNR), np.imag(x_BTNR)], axis=-1)
    norm_NH = np.linalg.norm(x_BTNH, axis=(0, 1))
    return np.abs(x_BTNR).mean(axis=1), norm_NH > _MASSIVE * norm_NH.mean(axis=-1, keepdims=True)


def _half_period(inv_freq_LNR: np.ndarray, weights_CLNR: np.ndarray) -> np.ndarray:
    """Return the period up to which pairs have half of the total weight, per resample.

    NaN for a total of 0 or NaN.
    """
    with np.errstate(divide="ignore"):
        periods_X = (2 * np.pi / np.abs(inv_freq_LNR)).ravel()
    order = np.argsort(periods_X)
    weights_CX = weights_CLNR.reshape(len(weights_CLNR), -1)[:, order].cumsum(axis=1)
    total_C1 = weights_CX[:, -1:]
    half_C = (weights_CX < total_C1 / 2).sum(axis=1)
    return np.where(total_C1[:, 0] > 0, periods_X[order][half_C], np.nan)
