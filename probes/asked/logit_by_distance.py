"""What heads make of distance alone: the mean logit of any query with any key so far before it.

Through pair i of a head's features, the key s scores Re z_i exp(i (t - s) inv_freq_i) with the
query t, z_i = q_i conj(k_i) before rotation. Where what z says does not depend on how far apart
the two stand, the mean over positions is a trigonometric series in the distance,

    mean(m) = sum_i a_i cos(m inv_freq_i) + b_i sin(m inv_freq_i),    a_i - i b_i = mean z_i,

which is drawn beside what is counted at each distance: where they differ, contents that stand near
each other are alike, or are not.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from probes.figures import COLORS, first_column, head_handles, panels
from probes.inside import Capture
from probes.probe import INTERVAL, Number, Probe, complex_pairs, heads, resampled
from probes.subject import Subject
from reporting.looks import FAINT, INK
from reporting.style import handle, token_axis
from theory import capability


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class LogitByDistance(Probe):
    """The mean logit of all keys by distance, whatever they say, and its spread.

    Of every layer and head; intervals are 95%, over rows.

    Attributes:
      inv_freq_LNR: radians per token.
      cosine_LNR, sine_LNR: a and b of the series, in units of the logit.
      spread_LNR: of each pair, root mean square of |z - mean z|: what content does to it.
      distances_M: 0, 1, ... tokens.
      mean_LNM, mean_low_LNM, mean_high_LNM: counted; nan at distances that a layer does not see.
      series_LNM: as the series has it.
      spread_LNM: standard deviation of the logits at each distance.
    """

    title = "What distance alone does to the logit"
    caption = """
    The mean logit of all pairs of a query and a key so far before it, head by head: counted (dots),
    and as the trigonometric series that mean content makes (lines); shaded, where there is one
    head, one standard deviation of the logits at each distance to either side."""
    by_default = True

    inv_freq_LNR: np.ndarray
    cosine_LNR: np.ndarray
    sine_LNR: np.ndarray
    spread_LNR: np.ndarray
    distances_M: np.ndarray
    mean_LNM: np.ndarray
    mean_low_LNM: np.ndarray
    mean_high_LNM: np.ndarray
    series_LNM: np.ndarray
    spread_LNM: np.ndarray

    @classmethod
    def look(cls, subject: Subject) -> "LogitByDistance":
        """See `logit_by_distance`."""
        return logit_by_distance(subject.asked[0])

    @property
    def explained(self) -> np.ndarray:
        """Share `[L, N]` of the logits' variance that is between distances, which weigh alike."""
        between_LN = np.nanvar(self.mean_LNM, axis=-1)
        within_LN = np.nanmean(self.spread_LNM**2, axis=-1)
        return between_LN / np.maximum(between_LN + within_LN, 1e-30)

    def numbers(self) -> dict[str, Number]:
        """Over all heads."""
        share = "share of the logit's variance that distance explains, most of a head"
        return {share: Number(float(self.explained.max()))}

    def lines(self) -> list[dict[str, str]]:
        """A line a head."""
        return [
            {
                "layer": str(layer),
                "head": str(head),
                "highest at (tokens)": str(self.distances_M[np.nanargmax(mean_M)]),
                "mean logit, from": f"{np.nanmin(mean_M):.2f}",
                "to": f"{np.nanmax(mean_M):.2f}",
                "spread": f"{np.sqrt(np.nanmean(self.spread_LNM[layer, head] ** 2)):.2f}",
                "explained by distance": f"{self.explained[layer, head]:.1%}",
            }
            for layer, head in heads(self.explained)
            for mean_M in [self.mean_LNM[layer, head]]
        ]

    @classmethod
    def plot(cls, found: Mapping[str, Sequence["LogitByDistance"]]) -> Figure:
        """Of several seeds the first, for heads have no common order."""
        figure, axes = panels(list(found), sharex=True)
        for (ax,), (first, *_) in zip(axes, found.values(), strict=True):
            places = heads(first.explained)
            for place, color in zip(places, COLORS * len(places), strict=False):
                m_M, mean_M = first.distances_M[1:], first.mean_LNM[place][1:]  # 0 has no logarithm
                series_M = np.where(np.isnan(mean_M), np.nan, first.series_LNM[place][1:])
                ax.plot(m_M, series_M, color=color, lw=1.4)
                ax.plot(m_M, mean_M, ".", color=color, ms=2, alpha=0.7)
                if len(places) == 1:
                    spread_M = first.spread_LNM[place][1:]
                    low_M, high_M = mean_M - spread_M, mean_M + spread_M
                    ax.fill_between(m_M, low_M, high_M, color=color, alpha=0.12, lw=0)
            ax.axhline(0, color=FAINT, lw=0.8)
            ax.set_xscale("log", base=2)
            token_axis(ax.xaxis, num_ticks=8)
        for (ax,) in first_column(axes):
            ax.set_ylabel("mean logit")
        figure.supxlabel("distance (tokens, log scale)", fontsize=10)
        counted = handle("counted", marker=".", color=INK, ls="none")
        figure.legend(
            handles=[*head_handles(seeds[0].explained for seeds in found.values()), counted],
            loc="outside right center",
        )
        return figure


def logit_by_distance(inside: Capture) -> LogitByDistance:
    """Of all queries and the keys that they see, each row weighing as many as it has."""
    inv_freq_LNR = capability.of_heads(inside.table().inv_freq, inside.config.num_heads)
    layers = [_of_layer(inside, *each) for each in enumerate(inv_freq_LNR)]
    return LogitByDistance(
        inv_freq_LNR=inv_freq_LNR,
        distances_M=np.arange(inside.length),
        **{name: np.stack([each[name] for each in layers]) for name in layers[0]},
    )


def _of_layer(inside: Capture, layer: int, inv_freq_NR: np.ndarray) -> dict[str, np.ndarray]:
    """The fields of `LogitByDistance` that differ by layer."""
    sums = [_by_distance(queries.start, each) for queries, each in inside.chunks(layer)]
    count_BM, sum_BNM, square_BNM = (
        np.sum([np.asarray(each[part], np.float64) for each in sums], axis=0) for part in range(3)
    )
    with np.errstate(invalid="ignore"):  # no key is seen from so far: nan
        mean_NM = sum_BNM.sum(0) / count_BM.sum(0)
        spread_NM = np.sqrt(np.maximum(square_BNM.sum(0) / count_BM.sum(0) - mean_NM**2, 0))
        drawn_CB = resampled(len(count_BM))
        means_CNM = np.einsum("cb,bnm->cnm", drawn_CB, sum_BNM, optimize=True)
        means_CNM /= (drawn_CB @ count_BM)[:, None]
    mean_NR, spread_NR = _content(inside, layer, inv_freq_NR)
    turns_NRM = np.exp(1j * inv_freq_NR[..., None] * np.arange(inside.length))
    low_NM, high_NM = np.percentile(means_CNM, INTERVAL, axis=0)
    return {
        "cosine_LNR": np.real(mean_NR),
        "sine_LNR": -np.imag(mean_NR),
        "spread_LNR": spread_NR,
        "mean_LNM": mean_NM,
        "mean_low_LNM": low_NM,
        "mean_high_LNM": high_NM,
        "series_LNM": np.einsum("nr,nrm->nm", mean_NR, turns_NRM).real,
        "spread_LNM": spread_NM,
    }


@jax.jit
def _by_distance(start, logits_BNTS) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Keys seen at each distance `[B, M]`, sums of their logits and of the squares `[B, N, M]`.

    The queries are those from `start` on.
    """
    T, S = logits_BNTS.shape[2:]
    key_TM = start + jnp.arange(T)[:, None] - jnp.arange(S)
    # Diagonals made columns: the key that stands so far before each query.
    logits_BNTM = jnp.take_along_axis(logits_BNTS, jnp.maximum(key_TM, 0)[None, None], axis=-1)
    is_seen_BNTM = (key_TM >= 0) & jnp.isfinite(logits_BNTM)
    logits_BNTM = jnp.where(is_seen_BNTM, logits_BNTM, 0)
    counts_BM = is_seen_BNTM[:, 0].sum(axis=1)
    return counts_BM, logits_BNTM.sum(axis=2), (logits_BNTM**2).sum(axis=2)


def _content(inside: Capture, layer: int, inv_freq_NR: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean of z over all pairs of a query and a key in one document, `[N, R]`, and its spread."""
    N = inside.config.num_heads
    mean_NR, square_NR, count = np.zeros(inv_freq_NR.shape, complex), np.zeros(inv_freq_NR.shape), 0
    q_BTNH, k_BSKH = map(np.asarray, inside.rotated(layer))
    for row, (q_TNH, k_SKH) in enumerate(zip(q_BTNH, k_BSKH, strict=True)):
        turn_TNR = np.exp(-1j * inside.positions_BT[row][:, None, None] * inv_freq_NR)
        q_TNR = complex_pairs(np.asarray(q_TNH, np.float64)) * turn_TNR
        k_SKH = np.asarray(k_SKH, np.float64)
        k_SNR = complex_pairs(np.repeat(k_SKH, N // k_SKH.shape[1], axis=1)) * turn_TNR
        for document in np.unique(inside.segment_ids_BT[row]):
            mine = inside.segment_ids_BT[row] == document
            # Sums over the keys up to each query, itself included: no T x S is needed.
            before_TNR = np.cumsum(k_SNR[mine].conj(), axis=0)
            mean_NR += (q_TNR[mine] * before_TNR).sum(axis=0)
            powers_TNR = np.cumsum(np.abs(k_SNR[mine]) ** 2, axis=0)
            square_NR += (np.abs(q_TNR[mine]) ** 2 * powers_TNR).sum(axis=0)
            count += mine.sum() * (mine.sum() + 1) // 2
    mean_NR /= count
    return mean_NR, np.sqrt(np.maximum(square_NR / count - np.abs(mean_NR) ** 2, 0))
