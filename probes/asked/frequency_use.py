"""Which frequencies a head uses: how long queries and keys are in each pair, and what that gains.

- Norms (Barbero et al. 2024, arXiv 2410.06205): the mean over tokens of the 2-norm of a query's,
  and of a key's, two features of a pair. Rotation leaves them as they are.
- Gain: what a pair adds to the logit of a key that matches over that of one that does not, by
  distance: its term a_i cos(m inv_freq_i) - b_i sin(m inv_freq_i) of `matching_keys`' series, of
  amplitude sqrt(a_i² + b_i²). Its share is signed: of the sum of all pairs' terms without signs.
- Massive features (Jin et al. 2025, arXiv 2502.01563): those of a head's queries or keys whose
  2-norm over all tokens is above 5 times the mean of the head's features.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from probes.asked.matching_keys import sums
from probes.figures import COLORS, DASHES, first_column, head_handles, panels
from probes.inside import Capture
from probes.probe import INTERVAL, Number, Probe, complex_pairs, heads, resampled
from probes.questions import Questions
from probes.subject import Subject
from reporting.looks import FAINT, INK, PAPER
from reporting.style import handle, token_axis
from theory import capability

_MASSIVE = 5  # times the mean
_MOST_DRAWN = 8  # heads


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class FrequencyUse(Probe):
    """How long queries and keys are in each pair, and what each adds to a matching key's gain.

    Of every layer and head; `_3LNR` are a value and the ends of its 95% interval over documents.

    Attributes:
      inv_freq_LNR: radians per token.
      query_3LNR, key_3LNR: mean 2-norm of a pair, in units of the features before any scale.
      cosine_LNR, sine_LNR: a and -b of a matching key's gain, in units of the logit.
      amplitude_3LNR: of that gain; a pair of noise alone has one above 0.
      massive_query_LNH, massive_key_LNH: bool, features that are massive.
      distances_M: 1, 2, ... tokens.
      sees_LM: whether a query of the layer sees that far at all, by its window.
      half_norm_3, half_gain_3: the period in tokens up to which pairs have half of the norms'
        product, and of the amplitudes, of all heads; inf where unrotated pairs have more.
    """

    title = "Which frequencies are used"
    caption = """
    Above: the mean 2-norm of queries (lines) and keys (dashed) in each pair of a head's features,
    from the fastest to the slowest, with 95% intervals over documents. Below: what each pair adds
    to what a matching key gains at a distance (red) or takes from it (blue), as a share of all
    pairs' terms; head above head, each from its fastest pair down. Of more than eight heads those
    that gain most."""
    by_default = True

    inv_freq_LNR: np.ndarray
    query_3LNR: np.ndarray
    key_3LNR: np.ndarray
    cosine_LNR: np.ndarray
    sine_LNR: np.ndarray
    amplitude_3LNR: np.ndarray
    massive_query_LNH: np.ndarray
    massive_key_LNH: np.ndarray
    distances_M: np.ndarray
    sees_LM: np.ndarray
    half_norm_3: np.ndarray
    half_gain_3: np.ndarray

    @classmethod
    def look(cls, subject: Subject) -> "FrequencyUse":
        """See `frequency_use`."""
        return frequency_use(*subject.asked)

    def share(self, layer: int, head: int) -> np.ndarray:
        """Each pair's signed share of what a matching key gains, `[R, M]`; NaN if unseen."""
        place = layer, head
        angles_RM = self.inv_freq_LNR[place][:, None] * self.distances_M
        terms_RM = self.cosine_LNR[place][:, None] * np.cos(angles_RM)
        terms_RM += self.sine_LNR[place][:, None] * np.sin(angles_RM)
        share_RM = terms_RM / np.maximum(np.abs(terms_RM).sum(axis=0), 1e-30)
        return np.where(self.sees_LM[layer], share_RM, np.nan)

    def numbers(self) -> dict[str, Number]:
        """Of all heads together."""
        massive = self.massive_query_LNH.sum() + self.massive_key_LNH.sum()
        return {
            "half of the norms' product in pairs of periods up to (tokens)": Number(
                *self.half_norm_3.tolist()
            ),
            "half of what a matching key gains in pairs of periods up to (tokens)": Number(
                *self.half_gain_3.tolist()
            ),
            "massive features of queries and keys": Number(float(massive)),
        }

    def lines(self) -> list[dict[str, str]]:
        """A line a head."""
        return [self._line(*place) for place in heads(self.inv_freq_LNR[..., 0])]

    def _line(self, layer: int, head: int) -> dict[str, str]:
        place = layer, head
        norms_R = self.query_3LNR[0][place] * self.key_3LNR[0][place]
        largest = self.amplitude_3LNR[0][place].argmax()
        return {
            "layer": str(layer),
            "head": str(head),
            "longest in pair": _pair(norms_R.argmax(), self.inv_freq_LNR[place]),
            "gains most by pair": _pair(largest, self.inv_freq_LNR[place]),
            "amplitude [95% CI]": "{:.3g} [{:.3g}, {:.3g}]".format(
                *self.amplitude_3LNR[:, layer, head, largest]
            ),
            "massive features": f"{self.massive_query_LNH[place].sum()} of queries, "
            f"{self.massive_key_LNH[place].sum()} of keys",
        }

    @classmethod
    def plot(cls, found: Mapping[str, Sequence["FrequencyUse"]]) -> Figure:
        """Of several seeds the first, for heads have no common order."""
        figure, axes = panels(list(found), rows=2)
        for (above, below), (first, *_) in zip(axes, found.values(), strict=True):
            first._draw_norms(above)
            first._draw_shares(below)
        for above, below in first_column(axes):
            above.set_ylabel("2-norm of a pair")
            below.set_ylabel("pairs, head above head")
        figure.legend(
            handles=[
                *head_handles(seeds[0].inv_freq_LNR[..., 0] for seeds in found.values()),
                handle("queries", color=INK, lw=1.4),
                handle("keys", color=INK, lw=1.4, ls=DASHES),
                handle("adds", marker="s", color="#b2182b", ls="none"),
                handle("takes away", marker="s", color="#2166ac", ls="none"),
            ],
            loc="outside right center",
        )
        return figure

    def _draw_norms(self, ax: Axes) -> None:
        places = heads(self.inv_freq_LNR[..., 0])
        pairs_R = np.arange(self.inv_freq_LNR.shape[-1])
        for place, color in zip(places, COLORS * len(places), strict=False):
            for norms_3LNR, style in ((self.query_3LNR, "-"), (self.key_3LNR, DASHES)):
                norms_R, low_R, high_R = (each[place] for each in norms_3LNR)
                ax.plot(pairs_R, norms_R, color=color, lw=1.2, ls=style)
                ax.fill_between(pairs_R, low_R, high_R, color=color, alpha=0.15, lw=0)
        ticks = np.unique(np.linspace(0, pairs_R[-1], 4).round().astype(int))
        periods = [_period(self.inv_freq_LNR[0, 0, pair]) for pair in ticks]
        ax.set_xticks(ticks, [f"{t}\n{p}" for t, p in zip(ticks, periods, strict=True)], fontsize=7)
        ax.set_xlabel("pair, and its period (tokens)", fontsize=8)
        ax.set_ylim(bottom=0)

    def _draw_shares(self, ax: Axes) -> None:
        places = heads(self.inv_freq_LNR[..., 0])
        gain_LN = self.amplitude_3LNR[0].sum(axis=-1)
        drawn = sorted(sorted(places, key=lambda place: -gain_LN[place])[:_MOST_DRAWN])
        R = self.inv_freq_LNR.shape[-1]
        shares = np.concatenate([self.share(*place) for place in drawn])
        edges_M = np.append(self.distances_M, self.distances_M[-1] + 1) - 0.5
        most = np.nanmax(np.abs(shares))
        cells = ax.pcolormesh(edges_M, np.arange(len(shares) + 1), shares, cmap="RdBu_r")
        cells.set_clim(-most, most)
        cells.set_rasterized(True)
        for line in range(R, len(shares), R):
            ax.axhline(line, color=PAPER, lw=1.5)
            ax.axhline(line, color=FAINT, lw=0.5)
        names = [
            f"head {head}" if len(self.inv_freq_LNR) == 1 else f"{at}.{head}" for at, head in drawn
        ]
        ax.set_yticks(R * (np.arange(len(drawn)) + 0.5), names, fontsize=7)
        ax.invert_yaxis()
        ax.set_xscale("log", base=2)
        ax.set_xlim(left=1)
        token_axis(ax.xaxis, num_ticks=8)
        ax.set_xlabel("distance to the matching key (tokens)", fontsize=8)


def _period(inv_freq: float) -> str:
    return f"{float(f'{2 * np.pi / inv_freq:.3g}'):,.10g}" if inv_freq else "–"


def _pair(pair: int, inv_freq_R: np.ndarray) -> str:
    if inv_freq_R[pair] == 0:
        return f"{pair} (unrotated)"
    return f"{pair} (period {_period(inv_freq_R[pair])})"


def frequency_use(inside: Capture, questions: Questions) -> FrequencyUse:
    """What each frequency is used for, from the queries and keys of some questions.

    Args:
      inside, questions: as `probes.questions.ask` gives them.

    Raises:
      ValueError: without questions, or where none has a key it could be mistaken for.
    """
    config = inside.config
    inv_freq_LNR = capability.of_heads(inside.table().inv_freq, config.num_heads)
    of_layers = [sums(inside, questions, *each) for each in enumerate(inv_freq_LNR)]
    # The documents as they are, then drawn again and again.
    B = len(inside.tokens_BT)
    weights_CB = np.concatenate([np.ones((1, B)), resampled(B)])
    group = config.num_heads // inside.inside.k_LBSKH.shape[3]
    query_CLNR, massive_query_LNH = _norms(inside.inside.q_LBTNH, weights_CB)
    key_CLKR, massive_key_LKH = _norms(inside.inside.k_LBSKH, weights_CB)
    key_CLNR = np.repeat(key_CLKR, group, axis=2)
    gap_CLNR = np.stack([found.means(weights_CB)[1] for found in of_layers], axis=1)
    amplitude_CLNR, distances_M = np.abs(gap_CLNR), np.arange(1, inside.length)
    return FrequencyUse(
        inv_freq_LNR=inv_freq_LNR,
        query_3LNR=_with_interval(query_CLNR),
        key_3LNR=_with_interval(key_CLNR),
        cosine_LNR=gap_CLNR[0].real,
        sine_LNR=-gap_CLNR[0].imag,
        amplitude_3LNR=_with_interval(amplitude_CLNR),
        massive_query_LNH=massive_query_LNH,
        massive_key_LNH=np.repeat(massive_key_LKH, group, axis=1),
        distances_M=distances_M,
        sees_LM=np.stack([inside.sees(layer, distances_M) for layer in range(config.num_layers)]),
        half_norm_3=_with_interval(_half(inv_freq_LNR, query_CLNR * key_CLNR)),
        half_gain_3=_with_interval(_half(inv_freq_LNR, amplitude_CLNR)),
    )


def _norms(x_LBTNH, weights_CB: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean 2-norm of each pair by draw of documents, `[C, L, N, R]`; massive features."""
    norm_LBNR, square_LNH = [], []
    for x_BTNH in x_LBTNH:
        x_BTNH = np.asarray(x_BTNH, np.float64)
        norm_LBNR.append(np.abs(complex_pairs(x_BTNH)).mean(axis=1))
        square_LNH.append((x_BTNH**2).sum(axis=(0, 1)))
    norm_LNH = np.sqrt(square_LNH)
    mean_CLNR = np.einsum("cb,lbnr->clnr", weights_CB, norm_LBNR, optimize=True)
    mean_CLNR /= weights_CB.sum(axis=1)[:, None, None, None]
    return mean_CLNR, norm_LNH > _MASSIVE * norm_LNH.mean(axis=-1, keepdims=True)


def _with_interval(x_CX: np.ndarray) -> np.ndarray:
    """`[3, ...]`: the first, and the ends of the interval of the others, which are draws of it."""
    return np.stack([x_CX[0], *np.percentile(x_CX[1:], INTERVAL, axis=0, method="nearest")])


def _half(inv_freq_LNR: np.ndarray, weights_CLNR: np.ndarray) -> np.ndarray:
    """The period up to which pairs have half of all weight, by draw."""
    with np.errstate(divide="ignore"):
        periods_X = (2 * np.pi / inv_freq_LNR).ravel()
    order = np.argsort(periods_X)
    weights_CX = weights_CLNR.reshape(len(weights_CLNR), -1)[:, order].cumsum(axis=1)
    half_C = (weights_CX < weights_CX[:, -1:] / 2).sum(axis=1)
    return periods_X[order][half_C]
