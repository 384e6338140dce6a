"""Figures of docs/theory.md, computed when they are drawn."""

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from ropewalk.theory import decay
from ropewalk.theory.capability import capability, required_capability
from ropewalk.theory.wavelengths import Report
from ropewalk.utils import figures as kit
from ropewalk.utils.files import write_atomically
from ropewalk.utils.messages import counted

_MAX_POINTS = 20_000  # of a curve


@matplotlib.rc_context(kit.STYLE)
def base_against_length(rows: Sequence[Mapping]) -> Figure:
    """Draw the smallest base by length: certified, published, asymptotic.

    Args:
      rows: rows of `ropewalk theory table --json`.
    """
    figure = kit.new_figure(9.2, 4.6)
    ax = figure.subplots()
    lengths = [row["length"] for row in rows]
    certified: dict[str, Any] = {"marker": "o", "color": kit.INK, "lw": 1.4, "ms": 5}
    many_pairs: dict[str, Any] = {"color": kit.FAINT, "lw": 1.4, "ls": kit.DASHED}
    ax.plot(lengths, [row["asymptotic"] for row in rows], **many_pairs)
    handles = [kit.handle("certified", **certified)]
    handles.append(kit.handle("infinitely many pairs:\nL / x₀ (docs/theory.md)", **many_pairs))
    published = ("men_2024", "D", 9, "Men et al. 2024, Table 2"), ("su_2024", "x", 8, "Su 2024")
    for key, marker, size, label in published:
        points = [(row["length"], row[key]) for row in rows if row[key] is not None]
        if points:
            ax.plot(*zip(*points, strict=True), marker, color=kit.FAINT, ms=size, mew=1.8)
            handles.append(kit.mark_handle(label, marker, color=kit.FAINT, ms=size, mew=1.8))
    ax.plot(lengths, [row["high"] for row in rows], **certified)
    kit.token_axis(ax.xaxis)
    kit.power_axis(ax.yaxis)
    ax.set_xlabel("context length L (tokens, log scale)")
    ax.set_ylabel("smallest base with Bₘ ≥ 0\nfor all m < L (log scale)")
    kit.add_legend(figure, handles)
    return figure


@matplotlib.rc_context(kit.STYLE)
def attention_bounds(curves: Mapping[str, np.ndarray], length: int) -> Figure:
    """Draw `decay.attention_bound` for 0 <= m < length, relative to distance 0.

    Args:
      curves: names and inverse frequencies, float64 `[R]`, radians per token.
      length: tokens.
    """
    figure = kit.new_figure(9.2, 3.6)
    axes = figure.subplots()
    distances = np.unique(np.linspace(0, length - 1, min(length, _MAX_POINTS)).astype(np.int64))
    looks = kit.make_looks([_base(inv_freq) for inv_freq in curves.values()], [1] * len(curves))
    for (name, inv_freq), look in zip(curves.items(), looks, strict=True):
        values = decay.attention_bound(inv_freq, distances)
        axes.plot(distances, values / values[0], color=look.color, lw=0.8, label=name)
    axes.set(
        xlabel="distance m (tokens)", xlim=(0, length), ylabel="bound / bound at 0", ylim=(0, 1)
    )
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.legend()
    return figure


@matplotlib.rc_context(kit.STYLE)
def decay_curves(curves: Mapping[str, np.ndarray], length: int) -> Figure:
    """Draw B_m for 0 <= m < length, a panel per curve, with its first negative distance.

    Args:
      curves: names and inverse frequencies, float64 `[R]`, radians per token.
      length: tokens.
    """
    figure = kit.new_figure(9.2, 0.8 + 1.7 * len(curves))
    axes = figure.subplots(len(curves), 1, sharex=True, sharey=True, squeeze=False)
    distances = np.unique(np.linspace(0, length - 1, min(length, _MAX_POINTS)).astype(np.int64))
    looks = kit.make_looks([_base(inv_freq) for inv_freq in curves.values()], [1] * len(curves))
    for ax, (name, inv_freq), look in zip(axes[:, 0], curves.items(), looks, strict=True):
        values = decay.cosine_sum(inv_freq, distances)
        ax.plot(distances, values, color=look.color, lw=0.8)
        ax.axhline(0, color=kit.INK, lw=0.8)
        first = decay.first_violation(inv_freq, length)
        text = "no distance with Bₘ < 0"
        if first is not None:
            ax.axvline(first, color=kit.INK, lw=1, ls=kit.DASHED)
            text = f"first Bₘ < 0 at {first:,} tokens"
        kit.set_title(ax, f"{name}: {text}")
    axes[-1, 0].set(xlabel="distance m (tokens)", xlim=(0, length))
    axes[-1, 0].xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    figure.supylabel("Bₘ = Σ cos(m ωᵢ)")
    return figure


def _base(inv_freq: np.ndarray) -> float | None:
    """Return the base if the pairs that rotate are a geometric series, else None."""
    rotated = inv_freq[inv_freq != 0]
    ratios = rotated[:-1] / rotated[1:]
    if len(ratios) and ratios[0] > 1 and np.allclose(ratios, ratios[0], rtol=1e-9):
        return float(f"{ratios[0] ** len(rotated):.6g}")
    return None


@matplotlib.rc_context(kit.STYLE)
def capabilities(inv_freq_NR: np.ndarray, length: int, num_others: int | None = None) -> Figure:
    """Draw D_H against the length, for the first 1, 2, 4, ... heads and for all of them.

    Args:
      inv_freq_NR: float64, radians per token, of each head.
      length: tokens, at least 2.
      num_others: number of keys that do not match; the D_H needed for accuracy .5 is drawn.
    """
    figure = kit.new_figure(9.2, 4.6)
    ax = figure.subplots()
    num_points = round(2 * math.log2(length)) + 1  # one per half octave
    lengths = np.unique(np.geomspace(1, length, num_points).round().astype(int))
    counts = {2**power for power in range(len(inv_freq_NR).bit_length())} | {len(inv_freq_NR)}
    handles = []
    looks = kit.make_looks([1.0] * len(counts), sorted(counts))
    for count, look in zip(sorted(counts), looks, strict=True):
        values = [capability(inv_freq_NR[:count], m).value for m in lengths.tolist()]
        # Heads attain at least this value at every shorter length.
        values = np.maximum.accumulate(values[::-1])[::-1]
        ax.plot(lengths, values, marker="o", ms=4, lw=1.7, **look.line)
        label = counted(count, "heads") + " (at least)" * (count > 1)
        handles.append(kit.handle(label, lw=2.2, **look.line))
    if num_others is not None:
        ax.axhline(required_capability(num_others), **kit.REFERENCE)
        label = f"needed for accuracy .5\namong {num_others} other keys"
        handles.append(kit.handle(label, **kit.REFERENCE))
    kit.token_axis(ax.xaxis)
    ax.set_xlabel("length M (tokens, log scale)")
    ax.set_ylabel("capability D_H\n(standard deviations)")
    ax.set_ylim(bottom=0)
    kit.add_legend(figure, handles, handlelength=5)  # to tell dashes apart
    return figure


@matplotlib.rc_context(kit.STYLE)
def wavelengths(reports: Sequence[Report]) -> Figure:
    """Draw wavelength against pair, a panel per variant, with the others in gray."""
    figure, axes = kit.grid(len(reports), height=2.3, sharex=True, sharey=True)
    lengths = sorted({report.length for report in reports})
    highest = max(max(report.wavelength[report.inv_freq != 0], default=1) for report in reports)
    top = 3 * max(highest, *lengths)
    looks = kit.make_looks([report.base for report in reports], [1] * len(reports))
    for (ax,), report, look in zip(axes, reports, looks, strict=True):
        for other in (*reports, report):
            # The pair as a share of the head, so that heads of different sizes compare.
            depth = np.arange(len(other.inv_freq)) / len(other.inv_freq)
            is_rotated = other.inv_freq != 0
            style = {"color": kit.GRID, "lw": 1, "zorder": 1}
            if other is report:
                style = {"color": look.color, "lw": 2}
                ax.plot(depth[~is_rotated], [top] * (~is_rotated).sum(), "^", ms=4, **style)
            ax.plot(depth[is_rotated], other.wavelength[is_rotated], **style)
        for length in lengths:
            ax.axhline(length, **kit.REFERENCE)
        kit.power_axis(ax.yaxis)
        ax.set_title(kit.folded(report.name), fontsize=7.5)
    figure.supxlabel("pair, as a share of the head (fastest at 0)")
    figure.supylabel("wavelength (tokens per cycle, log scale)")
    names = ", ".join(f"{length:,}" for length in lengths)
    handles = [kit.handle(f"context of {names} tokens", **kit.REFERENCE)]
    if len(reports) > 1:
        handles.append(kit.handle("the other variants", color=kit.GRID, lw=2))
    if any((report.inv_freq == 0).any() for report in reports):
        handles.append(kit.mark_handle("unrotated pair", "^", ms=5))
    kit.add_legend(figure, handles)
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write a figure in the format of its suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = io.BytesIO()
    with matplotlib.rc_context(kit.STYLE):
        figure.savefig(content, format=path.suffix[1:])
    write_atomically(path, content.getvalue())
