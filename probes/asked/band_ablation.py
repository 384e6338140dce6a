"""Which frequencies a model needs: its pairs are taken away band by band, and it is asked again.

A band is an octave of periods. Its pairs are zeroed, so that the logit does without them, or
frozen, so that content still counts and what the pair says of distance is lost: it scores every
key as if it stood beside the query. What that costs stands beside the same done to as many pairs
drawn at random.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from evals.score import Candidate
from model.config import ModelConfig
from model.positions import freeze_pairs
from model.transformer import without_pairs
from probes.changed import Effects
from probes.figures import DASHES, first_column, panels
from probes.probe import Number, Probe
from probes.subject import Subject
from reporting.looks import FAINT, INK
from reporting.style import handle, token_axis
from theory import capability

WAYS = "zeroed", "frozen"

_COLORS = "#d55e00", "#0072b2"
_DRAWS = 4


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class BandAblation(Probe):
    """What each octave of periods is worth: its pairs zeroed or frozen, beside as many at random.

    W ways (`WAYS`), G bands, C draws of random pairs; `_3WG` are a value and the ends of its 95%
    interval over documents. L50 in tokens, NaN where the model no longer answers even next door;
    loss is that of answers to key-value recall, in nats.

    Attributes:
      start_G: shortest period of a band in tokens, half of its longest; inf: pairs that do not
        rotate.
      pairs_G: of a head, mean over the heads that are changed.
      trained_length: tokens.
      longest: distance asked, tokens.
      own_l50_3, own_loss_3: of the model as it is.
      l50_3WG, loss_3WG: without the band.
      said_WG: that L50 in words.
      random_l50_WGC, random_loss_WGC: without as many pairs of each layer's heads at random.
    """

    title = "What each band of frequencies is worth"
    caption = """
    How far the model sees, and what its answers cost, when the pairs of one octave of periods are
    zeroed or frozen (no longer turned) in all heads: large dots with 95% intervals over documents;
    small ones: as many pairs at random, four draws. Dashed: the model as it is; grey: the length it
    was trained at. A cross at the bottom: it does not answer even next door."""

    start_G: np.ndarray
    pairs_G: np.ndarray
    trained_length: int
    longest: int
    own_l50_3: np.ndarray
    own_loss_3: np.ndarray
    l50_3WG: np.ndarray
    loss_3WG: np.ndarray
    said_WG: np.ndarray
    random_l50_WGC: np.ndarray
    random_loss_WGC: np.ndarray

    @classmethod
    def look(cls, subject: Subject) -> "BandAblation":
        """Of all heads: see `band_ablation`."""
        return band_ablation(subject)

    def numbers(self) -> dict[str, Number]:
        """The model as it is, and the band of each way that costs most beyond random pairs."""
        beyond_WG = self.loss_3WG[0] - self.random_loss_WGC.mean(axis=-1)
        costliest = {
            f"costliest band, {way}: periods from (tokens)": Number(
                float(self.start_G[beyond_WG[at].argmax()])
            )
            for at, way in enumerate(WAYS)
        }
        own = {
            "L50 as it is (tokens)": Number(*self.own_l50_3.tolist()),
            "loss of answers as it is (nats)": Number(*self.own_loss_3.tolist()),
        }
        return own | costliest

    def lines(self) -> list[dict[str, str]]:
        """A line a band and way."""
        return [
            {
                "periods (tokens)": _periods(start),
                "pairs of a head": f"{self.pairs_G[band]:.3g}",
                "are": way,
                "L50": str(self.said_WG[at, band]),
                "of random pairs": _range(self.random_l50_WGC[at, band], ".3g"),
                "loss [95% CI]": "{:.2f} [{:.2f}, {:.2f}]".format(*self.loss_3WG[:, at, band]),
                "of as many at random": _range(self.random_loss_WGC[at, band], ".2f"),
            }
            for band, start in enumerate(self.start_G)
            for at, way in enumerate(WAYS)
        ]

    @classmethod
    def plot(cls, found: Mapping[str, Sequence["BandAblation"]]) -> Figure:
        """L50 above, loss below; of several seeds the first."""
        figure, axes = panels(list(found), rows=2, sharex=True, sharey="row")
        for (above, below), (first, *_) in zip(axes, found.values(), strict=True):
            # An interval may be open; the axis ends at what was asked.
            most = 1.3 * first.longest
            l50_3WG = np.clip(first.l50_3WG, 1, most)
            first._draw(above, first.own_l50_3, l50_3WG, first.random_l50_WGC)
            first._draw(below, first.own_loss_3, first.loss_3WG, first.random_loss_WGC)
            above.set_yscale("log", base=2)
            above.set_ylim(0.9, most)
            token_axis(above.yaxis)
            below.set_xscale("log", base=2)
            token_axis(below.xaxis, num_ticks=5)
            if math.isinf(first.start_G[-1]):
                place, ends = first._places()[-1] * 2**0.5, above.get_xaxis_transform()
                above.text(place, 0.5, "unrotated", rotation=90, va="center", fontsize=7,
                           ha="center", transform=ends)  # fmt: skip
        for above, below in first_column(axes):
            above.set_ylabel("L50 (tokens)")
            below.set_ylabel("loss of answers (nats)")
        figure.supxlabel("period of the band's pairs (tokens, log scale)", fontsize=10)
        figure.legend(
            handles=[
                *(
                    handle(way, marker="o", color=color, ls="none")
                    for way, color in zip(WAYS, _COLORS, strict=True)
                ),
                handle("random pairs", marker="o", color=FAINT, ms=3, ls="none"),
                handle("as it is", color=INK, lw=1, ls=DASHES),
            ],
            loc="outside right center",
        )
        return figure

    def _draw(
        self, ax: Axes, own_3: np.ndarray, value_3WG: np.ndarray, random_WGC: np.ndarray
    ) -> None:
        ax.axhline(own_3[0], color=INK, lw=1, ls=DASHES)
        ax.axvline(self.trained_length, color=FAINT, lw=1)
        for band, start in enumerate(self._places()):
            for way, color in enumerate(_COLORS):
                x = start * 2 ** (0.3 + 0.4 * way)
                value, low, high = value_3WG[:, way, band]
                if math.isnan(value):
                    ax.plot(x, 0.02, "x", color=color, transform=ax.get_xaxis_transform())
                ax.plot(x, value, "o", color=color, ms=5, zorder=4)
                ax.vlines(x, low, high, color=color, lw=1.2)
                random_C = random_WGC[way, band]
                ax.plot([x] * len(random_C), random_C, "o", color=color, ms=2.5, alpha=0.5)

    def _places(self) -> np.ndarray:
        """Where bands begin in the figure: pairs that do not rotate stand right of all others."""
        finite = self.start_G[np.isfinite(self.start_G)]
        last = finite[-1] * 4 if len(finite) else self.trained_length
        return np.where(np.isinf(self.start_G), last, self.start_G)


def _periods(start: float) -> str:
    return "unrotated" if math.isinf(start) else f"{start:.4g}-{2 * start:.4g}"


def _range(values: np.ndarray, form: str) -> str:
    if np.isnan(values).all():
        return "not learned"
    return f"{np.nanmin(values):{form}} to {np.nanmax(values):{form}}"


def band_ablation(
    subject: Subject, heads: Iterable[tuple[int, int]] | None = None, *, draws: int = _DRAWS
) -> BandAblation:
    """Takes bands of frequencies out of some heads and asks the model again.

    Args:
      subject: the run.
      heads: (layer, query head) pairs, from 0; None: all.
      draws: of random pairs, for every band.

    Raises:
      ValueError: for a head that does not exist, or one that shares its key, or the norm of its
        query (qk_norm), with heads left out.
    """
    config, length = subject.run.config.model, subject.run.config.data.context_length
    inv_freq_LNR = capability.of_heads(subject.run.table.inv_freq, config.num_heads)
    is_chosen_LN = _chosen(inv_freq_LNR.shape[:2], heads)
    with np.errstate(divide="ignore"):
        octave_LNR = np.floor(np.log2(2 * np.pi / inv_freq_LNR / length))
    octave_G = np.unique(octave_LNR[is_chosen_LN])
    bands_GLNR = (octave_LNR == octave_G[:, None, None, None]) & is_chosen_LN[..., None]
    random = np.random.default_rng(0)
    drawn_GXLNR = np.stack([[band, *_random(band, draws, random)] for band in bands_GLNR])
    own, W, G, X = subject.candidate(), len(WAYS), len(octave_G), 1 + draws
    each_LNR = drawn_GXLNR.reshape(G * X, *inv_freq_LNR.shape)
    ways = (make(config, own, pairs) for make in (without, still) for pairs in each_LNR)
    effects = Effects.of(subject, itertools.chain([own], ways))
    l50_3WGX, loss_3WGX = (
        each_3X[:, 1:].reshape(3, W, G, X) for each_3X in (effects.l50_3X, effects.loss_3X)
    )
    return BandAblation(
        start_G=length * 2.0**octave_G,
        pairs_G=bands_GLNR.sum(axis=(1, 2, 3)) / is_chosen_LN.sum(),
        trained_length=length,
        longest=subject.length or length,
        own_l50_3=effects.l50_3X[:, 0],
        own_loss_3=effects.loss_3X[:, 0],
        l50_3WG=l50_3WGX[..., 0],
        loss_3WG=loss_3WGX[..., 0],
        said_WG=effects.said_X[1:].reshape(W, G, X)[..., 0],
        random_l50_WGC=l50_3WGX[0, ..., 1:],
        random_loss_WGC=loss_3WGX[0, ..., 1:],
    )


def _chosen(shape: tuple[int, ...], heads: Iterable[tuple[int, int]] | None) -> np.ndarray:
    L, N = shape
    chosen = list(np.ndindex(L, N) if heads is None else heads)
    is_chosen_LN = np.zeros((L, N), bool)
    for layer, head in chosen:
        if not (0 <= layer < L and 0 <= head < N):
            raise ValueError(
                f"no head {head} in layer {layer}: layers are 0 to {L - 1}, heads 0 to {N - 1}"
            )
        is_chosen_LN[layer, head] = True
    return is_chosen_LN


def _random(pairs_LNR: np.ndarray, draws: int, random: np.random.Generator) -> list[np.ndarray]:
    """As many pairs of each head; the same of heads that lose the same."""
    L, _, R = pairs_LNR.shape
    orders = [np.stack([random.permutation(R) for _ in range(L)]) for _ in range(draws)]
    return [np.take_along_axis(pairs_LNR, order_LR[:, None], axis=-1) for order_LR in orders]


def without(config: ModelConfig, candidate: Candidate, pairs_LNR: np.ndarray) -> Candidate:
    """The model whose logits do without some pairs of its heads; errors as of `without_pairs`."""
    return candidate._replace(params=without_pairs(config, candidate.params, pairs_LNR))


def still(config: ModelConfig, candidate: Candidate, pairs_LNR: np.ndarray) -> Candidate:
    """The model that does not turn some pairs of its heads.

    Raises:
      ValueError: if heads that share a key, which turns one way for all of them, differ.
    """
    L, N, R = pairs_LNR.shape
    K = 1 if config.mla is not None else config.kv_heads
    pairs_LKGR = pairs_LNR.reshape(L, K, N // K, R)
    if (pairs_LKGR != pairs_LKGR[:, :, :1]).any():
        raise ValueError(
            f"every {N // K} heads of a layer share a key, which turns one way: freeze pairs of "
            "all of them or of none"
        )
    pairs_LKR = pairs_LKGR[:, :, 0]
    if (pairs_LKR == pairs_LKR[:, :1]).all():
        pairs_LKR = pairs_LKR[:, :1]  # the table, and so the program, stays as it is

    def table_for(length: int):
        return freeze_pairs(candidate.table_for(length), pairs_LKR)

    return candidate._replace(table_for=table_for)
