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

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize

from ropewalk.probes.analyses.matching_keys import sum_by_document
from ropewalk.probes.probe import (
    HeadProbe,
    Number,
    bootstrap_counts,
    complex_pairs,
    head_name,
    with_interval,
)
from ropewalk.probes.subject import Subject
from ropewalk.utils.figures import DASHED, FAINT, INK, PAPER, handle, token_axis

_MASSIVE = 5  # times the mean
_MAX_HEADS = 8  # heads in the lower panel
_COLORS, _SCALE = "RdBu_r", Normalize(-0.2, 0.2)


class FrequencyUse(HeadProbe):
    """Norms of queries and keys in each pair, and each pair's share of the matching key's gap.

    For every layer and head; `_3LNR` are a value and the ends of its 95% interval over documents.

    Attributes:
      inv_freq_LNR: radians per token.
      query_3LNR, key_3LNR: mean 2-norm of a pair, in units of the features before any scale.
      cosine_LNR, sine_LNR: a and -b of the matching key's gap, in units of the logit.
      amplitude_3LNR: amplitude of that gap; noise alone has an amplitude above 0.
      massive_query_LNH, massive_key_LNH: bool, massive features.
      distances_M: 1, 2, ... tokens.
      visible_LM: whether a query of the layer attends to this distance, given its window.
      half_norm_3, half_gain_3: the period in tokens up to which pairs have half of the norms'
        product, and of the amplitudes, of all heads; inf if unrotated pairs have more.
    """

    title = "Use of frequencies"
    caption = """
    Above: mean 2-norm of queries (solid) and keys (dashed) in each pair of a head's features, from
    the fastest to the slowest, with 95% intervals over documents. Below: each pair's contribution
    to the matching key's logit gap at a distance, as a share of the sum of all pairs' absolute
    terms; one block per head, its fastest pair on top. With more than eight heads, those of the
    largest amplitudes."""
    by_default = True
    y_labels = "2-norm of a pair", "pairs of each head"
    per_head = "inv_freq_LNR"
    references = (
        handle("queries", color=INK, lw=1.4),
        handle("keys", color=INK, lw=1.4, ls=DASHED),
    )
    color_scale = ScalarMappable(_SCALE, _COLORS), "share of the logit gap"

    @classmethod
    def measure(cls, subject: Subject) -> "FrequencyUse":
        """Measure the use of each frequency from the captured questions.

        Raises:
          ValueError: if there is no question with a distractor.
        """
        inside, questions = subject.capture, subject.questions
        config = inside.config
        inv_freq_LNR = inside.inv_freq
        sums = [sum_by_document(inside, questions, *item) for item in enumerate(inv_freq_LNR)]
        weights_CB = bootstrap_counts(len(inside.tokens_BT))
        q_LBTNH, k_LBSKH = zip(*map(inside.unrotated, range(config.num_layers)), strict=True)
        group = config.num_heads // k_LBSKH[0].shape[2]
        query_CLNR, massive_query_LNH = _norms(q_LBTNH, weights_CB)
        key_CLKR, massive_key_LKH = _norms(k_LBSKH, weights_CB)
        key_CLNR = np.repeat(key_CLKR, group, axis=2)
        gap_CLNR = np.stack([layer_sums.means(weights_CB)[1] for layer_sums in sums], axis=1)
        amplitude_CLNR, distances_M = np.abs(gap_CLNR), np.arange(1, inside.length)
        return cls(
            inv_freq_LNR=inv_freq_LNR,
            query_3LNR=with_interval(query_CLNR, "nearest"),
            key_3LNR=with_interval(key_CLNR, "nearest"),
            cosine_LNR=gap_CLNR[0].real,
            sine_LNR=-gap_CLNR[0].imag,
            amplitude_3LNR=with_interval(amplitude_CLNR, "nearest"),
            massive_query_LNH=massive_query_LNH,
            massive_key_LNH=np.repeat(massive_key_LKH, group, axis=1),
            distances_M=distances_M,
            visible_LM=np.stack(
                [inside.is_visible(l, distances_M) for l in range(config.num_layers)]
            ),
            half_norm_3=with_interval(_half_period(inv_freq_LNR, query_CLNR * key_CLNR), "nearest"),
            half_gain_3=with_interval(_half_period(inv_freq_LNR, amplitude_CLNR), "nearest"),
        )

    def share(self, head: tuple[int, int]) -> np.ndarray:
        """Return each pair's signed share of a (layer, head)'s gap, `[R, M]`; NaN if masked."""
        angles_RM = self.inv_freq_LNR[head][:, None] * self.distances_M
        terms_RM = self.cosine_LNR[head][:, None] * np.cos(angles_RM)
        terms_RM += self.sine_LNR[head][:, None] * np.sin(angles_RM)
        share_RM = terms_RM / np.maximum(np.abs(terms_RM).sum(axis=0), 1e-30)
        return np.where(self.visible_LM[head[0]], share_RM, np.nan)

    def numbers(self) -> dict[str, Number]:
        """Return numbers over all heads together."""
        massive = self.massive_query_LNH.sum() + self.massive_key_LNH.sum()
        return {
            "period up to which pairs have half of the norms (tokens)": Number(*self.half_norm_3),
            "period up to which pairs have half of the gap (tokens)": Number(*self.half_gain_3),
            "massive features of queries and keys": Number(float(massive)),
        }

    def line(self, head: tuple[int, int]) -> dict[str, str]:
        """Return the pairs of largest norms and amplitude, and the massive features."""
        norms_R = self.query_3LNR[0][head] * self.key_3LNR[0][head]
        largest = self.amplitude_3LNR[0][head].argmax()
        return {
            "pair of largest norms": _format_pair(norms_R.argmax(), self.inv_freq_LNR[head]),
            "pair of largest amplitude": _format_pair(largest, self.inv_freq_LNR[head]),
            "amplitude [95% CI]": "{:.3g} [{:.3g}, {:.3g}]".format(
                *self.amplitude_3LNR[:, *head, largest]
            ),
            "massive features": f"{self.massive_query_LNH[head].sum()} of queries, "
            f"{self.massive_key_LNH[head].sum()} of keys",
        }

    def draw(self, axes: Sequence[Axes], color: str) -> None:
        """Draw norms above and shares below."""
        self._draw_norms(axes[0])
        self._draw_shares(axes[1])

    def _draw_norms(self, ax: Axes) -> None:
        pairs_R = np.arange(self.inv_freq_LNR.shape[-1])
        self.draw_curves(ax, pairs_R, self.query_3LNR, lw=1.2)
        self.draw_curves(ax, pairs_R, self.key_3LNR, lw=1.2, ls=DASHED)
        ticks = np.unique(np.linspace(0, pairs_R[-1], 4).round().astype(int))
        labels = [f"{t}\n{_format_period(self.inv_freq_LNR[0, 0, t])}" for t in ticks]
        ax.set_xticks(ticks, labels, fontsize=7)
        ax.set_xlabel("pair\nperiod (tokens)")
        ax.set_ylim(bottom=0)

    def _draw_shares(self, ax: Axes) -> None:
        amplitude_LN = self.amplitude_3LNR[0].sum(axis=-1)
        by_amplitude = sorted(self.heads, key=lambda head: -amplitude_LN[head])
        drawn = sorted(by_amplitude[:_MAX_HEADS])
        R = self.inv_freq_LNR.shape[-1]
        shares = np.concatenate([self.share(head) for head in drawn])
        edges_M = np.append(self.distances_M, self.distances_M[-1] + 1) - 0.5
        edges_R = np.arange(len(shares) + 1)
        cells = ax.pcolormesh(edges_M, edges_R, shares, cmap=_COLORS, norm=_SCALE)
        cells.set_rasterized(True)
        for line in range(R, len(shares), R):
            ax.axhline(line, color=PAPER, lw=1.5)
            ax.axhline(line, color=FAINT, lw=0.5)
        prefix = "head " if len(amplitude_LN) == 1 else ""
        names = [prefix + head_name(self.shape, head) for head in drawn]
        ax.set_yticks(R * (np.arange(len(drawn)) + 0.5), names, fontsize=7)
        ax.invert_yaxis()
        token_axis(ax.xaxis)
        ax.set_xlim(left=1)
        ax.set_xlabel("distance (tokens)")


def _format_period(inv_freq: float) -> str:
    return f"{float(f'{2 * np.pi / inv_freq:.3g}'):,.10g}" if inv_freq else "–"


def _format_pair(pair: int, inv_freq_R: np.ndarray) -> str:
    if inv_freq_R[pair] == 0:
        return f"{pair} (unrotated)"
    return f"{pair} (period {_format_period(inv_freq_R[pair])})"


def _norms(x_LBTNH, weights_CB: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each pair's mean 2-norm per resample, `[C, L, N, R]`, and massive features."""
    norm_LBNR, square_LNH = [], []
    for x_BTNH in x_LBTNH:
        x_BTNH = np.asarray(x_BTNH, np.float64)
        norm_LBNR.append(np.abs(complex_pairs(x_BTNH)).mean(axis=1))
        square_LNH.append((x_BTNH**2).sum(axis=(0, 1)))
    norm_LNH = np.sqrt(square_LNH)
    mean_CLNR = np.einsum("cb,lbnr->clnr", weights_CB, norm_LBNR, optimize=True)
    mean_CLNR /= weights_CB.sum(axis=1)[:, None, None, None]
    return mean_CLNR, norm_LNH > _MASSIVE * norm_LNH.mean(axis=-1, keepdims=True)


def _half_period(inv_freq_LNR: np.ndarray, weights_CLNR: np.ndarray) -> np.ndarray:
    """Return the period up to which pairs have half of the total weight, per resample."""
    with np.errstate(divide="ignore"):
        periods_X = (2 * np.pi / inv_freq_LNR).ravel()
    order = np.argsort(periods_X)
    weights_CX = weights_CLNR.reshape(len(weights_CLNR), -1)[:, order].cumsum(axis=1)
    half_C = (weights_CX < weights_CX[:, -1:] / 2).sum(axis=1)
    return periods_X[order][half_C]
