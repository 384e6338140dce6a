"""Ablation of frequency bands: which pairs a model needs.

A band is an octave of periods. Its pairs are zeroed, which removes them from the logit, or frozen,
which keeps their content and removes their dependence on distance: a frozen pair scores every key
like a key at distance 0. The control is the same number of random pairs; of frozen ones, of pairs
that rotate, or all of these if they are fewer.
"""

import math
from collections.abc import Iterable, Sequence
from typing import ClassVar

import numpy as np
from matplotlib.axes import Axes

from ropewalk.evals.score import Candidate
from ropewalk.model.config import ModelConfig
from ropewalk.model.positions import freeze_pairs
from ropewalk.model.transformer import select_heads, without_pairs
from ropewalk.probes.probe import NOT_MEASURED, Number, Probe, draw_points, format_number
from ropewalk.probes.subject import Subject
from ropewalk.theory import capability
from ropewalk.utils.figures import DASHED, FAINT, INK, REFERENCE, handle, mark_handle, token_axis

METHODS = "zeroed", "frozen"

_MARKERS = "os"
_NUM_DRAWS = 4
_NO_L50 = "no L50"


class BandAblation(Probe):
    """Effect of each octave of periods: its pairs zeroed or frozen, compared with random pairs.

    W methods (`METHODS`), G bands, C draws of random pairs; `_3WG` are a value and the ends of its
    95% interval over documents. L50 in tokens, as of `Effects`; loss of the answers
    to key-value recall, in nats.

    Attributes:
      start_G: shortest period of a band in tokens, half of its longest; inf: pairs that do not
        rotate.
      pairs_G: number of pairs of a head, mean over the changed heads.
      trained_length: tokens.
      intact_l50_3, intact_loss_3: of the unchanged model.
      l50_3WG, loss_3WG: without the band.
      l50_text_WG: that L50 as text.
      random_l50_WGC, random_loss_WGC: without as many random pairs of each layer's heads.
    """

    title = "Effect of each frequency band"
    caption = """
    Loss of the answers when the pairs of one octave of periods are zeroed (dots) or frozen (not
    rotated; squares) in all heads, with 95% intervals over documents. Gray: the same number of
    random pairs, four draws. Dashed: the unchanged model; dotted: trained length. L50 is in the
    details."""
    sentences: ClassVar = {
        "L50, unchanged (tokens)": "the unchanged model has an effective context of {value} tokens",
        "loss of answers, unchanged (nats)": "the unchanged model's answers cost {value} nats",
    } | {
        f"costliest band, {method}: periods from (tokens)": "the costliest octave of periods, "
        f"{method}, begins at {{value}} tokens|the costliest pairs, {method}, do not rotate"
        for method in METHODS
    }
    y_labels = ("loss of answers (nats)",)
    x_label = "period of the band's pairs (tokens, log scale)"
    sharey = "row"
    references = (
        *(mark_handle(name, marker) for name, marker in zip(METHODS, _MARKERS, strict=True)),
        mark_handle("random pairs", "o", color=FAINT, ms=3),
        handle("unchanged model", color=INK, lw=1, ls=DASHED),
        handle("trained length", **REFERENCE),
    )

    @classmethod
    def measure(
        cls, subject: Subject, heads: Iterable[tuple[int, int]] | None = None
    ) -> "BandAblation":
        """Remove bands of frequencies from some heads, as many random pairs, and evaluate.

        Args:
          subject: the run.
          heads: (layer, query head) pairs, from 0; None: all.

        Raises:
          ValueError: for a head that does not exist, or one that shares its key, or the norm of
            its query (qk_norm), with heads that are not in `heads`.
        """
        config, length = subject.run.config.model, subject.run.config.data.context_length
        inv_freq_LNR = capability.query_head_frequencies(
            subject.run.table.inv_freq, config.num_heads
        )
        shape = inv_freq_LNR.shape[:2]
        is_selected_LN = np.ones(shape, bool) if heads is None else select_heads(shape, heads)
        if not is_selected_LN.any():
            raise ValueError("heads=[] selects no head; leave it out to change all")
        with np.errstate(divide="ignore"):
            octave_LNR = np.floor(np.log2(2 * np.pi / np.abs(inv_freq_LNR) / length))
        octave_G = np.unique(octave_LNR[is_selected_LN])
        bands_GLNR = (octave_LNR == octave_G[:, None, None, None]) & is_selected_LN[..., None]
        random, intact = np.random.default_rng(0), subject.candidate()
        orders = [_draw_orders(inv_freq_LNR.shape, random) for _ in bands_GLNR]
        methods = (
            (zero_candidate, np.ones(inv_freq_LNR.shape, bool)),
            (freeze_candidate, inv_freq_LNR != 0),
        )
        changed = (
            change(config, intact, pairs_LNR)
            for change, is_drawn_LNR in methods
            for band, band_orders in zip(bands_GLNR, orders, strict=True)
            for pairs_LNR in (band, *(_draw(band, order, is_drawn_LNR) for order in band_orders))
        )
        unchanged, effects = subject.effects([intact]), subject.effects(changed)
        shape_WGX = len(METHODS), len(octave_G), 1 + _NUM_DRAWS
        l50_3WGX, loss_3WGX = (x.reshape(3, *shape_WGX) for x in (effects.l50_3X, effects.loss_3X))
        return cls(
            start_G=length * 2.0**octave_G,
            pairs_G=bands_GLNR.sum(axis=(1, 2, 3)) / is_selected_LN.sum(),
            trained_length=length,
            intact_l50_3=unchanged.l50_3X[:, 0],
            intact_loss_3=unchanged.loss_3X[:, 0],
            l50_3WG=l50_3WGX[..., 0],
            loss_3WG=loss_3WGX[..., 0],
            l50_text_WG=effects.l50_text_X.reshape(shape_WGX)[..., 0],
            random_l50_WGC=l50_3WGX[0, ..., 1:],
            random_loss_WGC=loss_3WGX[0, ..., 1:],
        )

    def numbers(self) -> dict[str, Number]:
        """Return the unchanged model's numbers, and each method's costliest band.

        A band's cost is its loss less the mean loss of random pairs.
        """
        cost_WG = self.loss_3WG[0] - self.random_loss_WGC.mean(axis=-1)
        costliest = {
            f"costliest band, {method}: periods from (tokens)": Number(
                np.nan if np.isnan(cost_G).all() else float(self.start_G[np.nanargmax(cost_G)])
            )
            for method, cost_G in zip(METHODS, cost_WG, strict=True)
        }
        intact = {
            "L50, unchanged (tokens)": Number(*self.intact_l50_3, missing=_NO_L50),
            "loss of answers, unchanged (nats)": Number(*self.intact_loss_3),
        }
        return costliest | intact

    def lines(self) -> list[dict[str, str]]:
        """Return a line per band and method."""
        return [
            {
                "periods (tokens)": _format_periods(start),
                "pairs per head": f"{self.pairs_G[band]:.3g}",
                "method": name,
                "L50": str(self.l50_text_WG[method, band]),
                "L50, random pairs": _format_range(
                    self.random_l50_WGC[method, band], ".3g", _NO_L50
                ),
                "loss [95% CI]": format_number([Number(*self.loss_3WG[:, method, band])]),
                "loss, random pairs": _format_range(
                    self.random_loss_WGC[method, band], ".2f", NOT_MEASURED
                ),
            }
            for band, start in enumerate(self.start_G)
            for method, name in enumerate(METHODS)
        ]

    def draw(self, axes: Sequence[Axes], color: str) -> None:
        """Draw the loss without each band."""
        (ax,) = axes
        ax.axhline(self.intact_loss_3[0], color=INK, lw=1, ls=DASHED)
        ax.axvline(self.trained_length, **REFERENCE)
        for method, marker in enumerate(_MARKERS):
            x_G = self._x_of_bands() * 2 ** (0.3 + 0.4 * method)
            draw_points(ax, x_G, self.loss_3WG[:, method], color, marker)
            ax.plot(x_G, self.random_loss_WGC[method], marker, color=FAINT, ms=2.5)
        token_axis(ax.xaxis)
        if math.isinf(self.start_G[-1]):
            x, transform = self._x_of_bands()[-1] * 2**0.5, ax.get_xaxis_transform()
            ax.text(x, 0.5, "unrotated", rotation=90, va="center", fontsize=7,
                    ha="center", transform=transform)  # fmt: skip

    def _x_of_bands(self) -> np.ndarray:
        """Return where bands begin on the x axis; unrotated pairs are right of all others."""
        finite = self.start_G[np.isfinite(self.start_G)]
        last = finite[-1] * 4 if len(finite) else self.trained_length
        return np.where(np.isinf(self.start_G), last, self.start_G)


def _format_periods(start: float) -> str:
    return "unrotated" if math.isinf(start) else f"{start:.4g}-{2 * start:.4g}"


def _format_range(values: np.ndarray, spec: str, missing: str) -> str:
    if np.isnan(values).all():
        return missing
    return f"{np.nanmin(values):{spec}} to {np.nanmax(values):{spec}}"


def _draw_orders(shape: tuple[int, ...], random: np.random.Generator) -> list[np.ndarray]:
    """Return orders of the pairs of each layer, `[L, 1, R]`, for each draw."""
    L, _, R = shape
    orders = [np.stack([random.permutation(R) for _ in range(L)]) for _ in range(_NUM_DRAWS)]
    return [order_LR[:, None] for order_LR in orders]


def _draw(pairs_LNR: np.ndarray, order_L1R: np.ndarray, is_drawn_LNR: np.ndarray) -> np.ndarray:
    """Return as many pairs of each head, of those that may be drawn as long as there are any.

    Heads with equal pairs have equal draws.
    """
    shuffled_LNR = np.take_along_axis(pairs_LNR, order_L1R, axis=-1)
    rank_LNR = np.where(is_drawn_LNR, ~shuffled_LNR, 2) * pairs_LNR.shape[-1] + order_L1R
    rank_LNR = rank_LNR.argsort(axis=-1).argsort(axis=-1)
    return is_drawn_LNR & (rank_LNR < pairs_LNR.sum(axis=-1, keepdims=True))


def zero_candidate(config: ModelConfig, candidate: Candidate, pairs_LNR: np.ndarray) -> Candidate:
    """Return the model without some pairs of its heads' logits; errors as of `without_pairs`."""
    return candidate._replace(params=without_pairs(config, candidate.params, pairs_LNR))


def freeze_candidate(config: ModelConfig, candidate: Candidate, pairs_LNR: np.ndarray) -> Candidate:
    """Return the model that does not rotate some pairs.

    Raises:
      ValueError: if the pairs differ between heads that share a key.
    """
    N, K = config.num_heads, 1 if config.mla is not None else config.kv_heads
    pairs_LKR = pairs_LNR[:, :: N // K]
    if (np.repeat(pairs_LKR, N // K, axis=1) != pairs_LNR).any():
        raise ValueError(f"{N // K} heads share a key and its rotation: change all of them")
    if (pairs_LKR == pairs_LKR[:, :1]).all():
        pairs_LKR = pairs_LKR[:, :1]  # keeps the shape of the table, and so the compiled program

    return candidate._replace(
        table_for=lambda length: freeze_pairs(candidate.table_for(length), pairs_LKR)
    )
