"""The mean logit of all pairs of a query and a key at each distance.

Through pair i of a head's features, query t scores key s by Re z_i exp(i (t - s) inv_freq_i), with
z_i = q_i conj(k_i) before rotation. If z does not depend on the distance between the two, its mean
over positions defines a trigonometric series in the distance,

    mean(m) = sum_i a_i cos(m inv_freq_i) + b_i sin(m inv_freq_i),    a_i - i b_i = mean z_i.

The figure shows it with the measured means. Where they differ, z does depend on the distance.
"""

from collections.abc import Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes

from ropewalk.probes.capturing import Capture, complex_pairs
from ropewalk.probes.probe import NOT_MEASURED, HeadProbe, Number
from ropewalk.probes.resample import bootstrap_mean
from ropewalk.probes.subject import Subject
from ropewalk.utils.figures import FAINT, mark_handle, token_axis

_EXPLAINED = "share of the logit's variance that distance explains, largest over heads"


class LogitByDistance(HeadProbe):
    """Mean logit of all keys by distance, and its standard deviation.

    For every layer and head; intervals are 95%, over rows.

    Attributes:
      inv_freq_LNR: radians per token.
      cosine_LNR, sine_LNR: a and b of the series, in units of the logit.
      spread_LNR: root mean square of |z - mean z| of each pair.
      distances_M: 0, 1, ... tokens.
      mean_LNM, mean_low_LNM, mean_high_LNM: measured; NaN at distances that a layer masks.
      series_LNM: values of the series.
      spread_LNM: standard deviation of the logits at each distance.
    """

    title = "Effect of distance on the logit"
    caption = """
    Mean logit of all pairs of a query and a key at each distance, for each head: measured (dots),
    and the trigonometric series of mean z (lines). Shaded, for models of one head: one standard
    deviation of the logits at each distance to either side."""
    by_default = True
    sentences: ClassVar = {
        _EXPLAINED: "distance explains at most {value} of the variance of a head's logits"
    }
    y_labels = ("mean logit",)
    x_label = "distance (tokens, log scale)"
    references = (mark_handle("measured", "."),)

    @classmethod
    def measure(cls, subject: Subject) -> "LogitByDistance":
        """Measure all queries and their visible keys; rows weigh as much as they have of these."""
        captured = subject.capture
        return cls.from_layers(
            [_layer_fields(captured, layer) for layer in range(captured.config.num_layers)],
            inv_freq_LNR=captured.inv_freq,
            distances_M=np.arange(captured.length),
        )

    @property
    def explained(self) -> np.ndarray:
        """Share of the logits' variance between equally weighted distances, `[L, N]`.

        NaN for logits without variance.
        """
        between_LN = np.nanvar(self.mean_LNM, axis=-1)
        within_LN = np.nanmean(self.spread_LNM**2, axis=-1)
        with np.errstate(invalid="ignore"):  # 0 / 0
            return between_LN / (between_LN + within_LN)

    def numbers(self) -> dict[str, Number]:
        """Return the largest share of variance over heads."""
        value = self.highest(np.stack([self.explained] * 3), largest=1).value
        return {_EXPLAINED: Number(value, largest=1)}

    def line(self, head: tuple[int, int]) -> dict[str, str]:
        """Return the range of the mean logit, and what distance explains."""
        mean_M, explained = self.mean_LNM[head], self.explained[head]
        return {
            "highest at (tokens)": str(self.distances_M[np.nanargmax(mean_M)]),
            "mean logit, from": f"{np.nanmin(mean_M):.2f}",
            "to": f"{np.nanmax(mean_M):.2f}",
            "spread": f"{np.sqrt(np.nanmean(self.spread_LNM[head] ** 2)):.2f}",
            "explained by distance": NOT_MEASURED if np.isnan(explained) else f"{explained:.1%}",
        }

    def draw(self, axes: Sequence[Axes], color: str) -> None:
        """Draw the mean logit."""
        (ax,) = axes
        distances_M = self.distances_M[1:]  # a log axis has no 0
        mean_LNM, spread_LNM = self.mean_LNM[..., 1:], self.spread_LNM[..., 1:]
        series_LNM = np.where(np.isnan(mean_LNM), np.nan, self.series_LNM[..., 1:])
        self.draw_curves(ax, distances_M, series_LNM)
        self.draw_curves(ax, distances_M, mean_LNM, marker=".", ls="", ms=2, alpha=0.7)
        if len(self.heads) == 1:
            ends = mean_LNM[0, 0] - spread_LNM[0, 0], mean_LNM[0, 0] + spread_LNM[0, 0]
            ax.fill_between(distances_M, *ends, color=self.colors[0][1], alpha=0.12, lw=0)
        ax.axhline(0, color=FAINT, lw=0.8)
        token_axis(ax.xaxis)


def _layer_fields(captured: Capture, layer: int) -> dict[str, np.ndarray]:
    """Return the fields of `LogitByDistance` that differ by layer."""
    sums = [_sum_by_distance(*chunk[:2]) for chunk in captured.chunks(layer)]
    count_BM, sum_BNM, square_BNM = (
        np.sum([np.asarray(x, np.float64) for x in parts], axis=0)
        for parts in zip(*sums, strict=True)
    )
    mean_NM, low_NM, high_NM = bootstrap_mean(sum_BNM, count_BM[:, None])
    with np.errstate(invalid="ignore"):  # 0 / 0: all keys at this distance are masked
        spread_NM = np.sqrt(np.maximum(square_BNM.sum(0) / count_BM.sum(0) - mean_NM**2, 0))
    mean_NR, spread_NR = _mean_content(captured, layer)
    phases_NRM = np.exp(1j * captured.inv_freq[layer][..., None] * np.arange(captured.length))
    return {
        "cosine_LNR": np.real(mean_NR),
        "sine_LNR": -np.imag(mean_NR),
        "spread_LNR": spread_NR,
        "mean_LNM": mean_NM,
        "mean_low_LNM": low_NM,
        "mean_high_LNM": high_NM,
        "series_LNM": np.einsum("nr,nrm->nm", mean_NR, phases_NRM).real,
        "spread_LNM": spread_NM,
    }


@jax.jit
def _sum_by_distance(indices_T, logits_BNTS) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return visible keys at each distance `[B, M]`, sums of their logits and squares `[B, N, M]`.

    `indices_T` are those of the queries.
    """
    key_TM = indices_T[:, None] - jnp.arange(logits_BNTS.shape[3])
    # Column m has the key m tokens before each query.
    logits_BNTM = jnp.take_along_axis(logits_BNTS, jnp.maximum(key_TM, 0)[None, None], axis=-1)
    visible_BNTM = (key_TM >= 0) & jnp.isfinite(logits_BNTM)
    logits_BNTM = jnp.where(visible_BNTM, logits_BNTM, 0)
    counts_BM = visible_BNTM[:, 0].sum(axis=1)
    return counts_BM, logits_BNTM.sum(axis=2), (logits_BNTM**2).sum(axis=2)


def _mean_content(captured: Capture, layer: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of z over all pairs of a row, which is a document, `[N, R]`, and its spread.

    Keys are summed up to each query, itself included, without an array of T x S.
    """
    B, T = captured.tokens_BT.shape
    phases_TNR = np.exp(-1j * np.arange(T)[:, None, None] * captured.inv_freq[layer])
    sum_NR = square_NR = 0
    for q_TNR, k_TNR in zip(*complex_pairs(*captured.rotated(layer)), strict=True):
        q_TNR, k_TNR = q_TNR * phases_TNR, k_TNR * phases_TNR
        sum_NR += (q_TNR * np.cumsum(k_TNR.conj(), axis=0)).sum(axis=0)
        square_NR += (np.abs(q_TNR) ** 2 * np.cumsum(np.abs(k_TNR) ** 2, axis=0)).sum(axis=0)
    count = B * T * (T + 1) // 2
    mean_NR = np.asarray(sum_NR) / count
    return mean_NR, np.sqrt(np.maximum(square_NR / count - np.abs(mean_NR) ** 2, 0))
