"""Figures of docs/theory.md, computed when they are drawn."""

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from theory import decay
from theory.capability import capability, required_capability
from utils.paths import local

# Colors that color-blind readers can distinguish (Okabe and Ito).
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MAX_POINTS = 20_000  # of a curve


def base_against_length(rows: Sequence[Mapping]) -> Figure:
    """Draw the smallest base by length: certified, published, asymptotic.

    Args:
      rows: rows of `python -m theory table --json`.
    """
    figure = Figure(figsize=(7.5, 5), layout="constrained")
    ax = figure.subplots()
    lengths = [row["length"] for row in rows]
    ax.plot(lengths, [row["high"] for row in rows], "o-", color=_COLORS[0], label="certified")
    for key, marker, color, label in (
        ("men_2024", "s", _COLORS[1], "Men et al. 2024, Table 2"),
        ("su_2024", "x", _COLORS[2], "Su 2024"),
    ):
        points = [(row["length"], row[key]) for row in rows if row[key] is not None]
        if points:
            ax.plot(*zip(*points, strict=True), marker, color=color, mfc="none", ms=9, label=label)
    estimate = [row["asymptotic"] for row in rows]
    ax.plot(lengths, estimate, "--", color=_COLORS[6], label="$L/x_0$: infinitely many pairs")
    ax.set_xscale("log", base=2)
    ylabel = "smallest base with $B_m \\geq 0$ for all m < L"
    ax.set(yscale="log", xlabel="context length L (tokens)", ylabel=ylabel)
    ax.grid(alpha=0.3)
    ax.legend()
    return figure


def decay_curves(curves: Mapping[str, np.ndarray], length: int) -> Figure:
    """Draw B_m for 0 <= m < length, with the first negative distance of each curve.

    Args:
      curves: names and inverse frequencies, float64 `[R]`, radians per token.
      length: tokens.
    """
    figure = Figure(figsize=(8.5, 4.5), layout="constrained")
    ax = figure.subplots()
    distances = np.unique(np.linspace(0, length - 1, min(length, _MAX_POINTS)).astype(np.int64))
    colors = itertools.cycle(_COLORS)
    for (name, inv_freq), color in zip(curves.items(), colors, strict=False):
        values = decay.cosine_sum(inv_freq, distances)
        first = decay.first_violation(inv_freq, length)
        text = "no violation" if first is None else f"first violation at {first:,}"
        # Escaped, because matplotlib reads text between dollars as a formula.
        label = f"{name}: {text}".replace("$", r"\$")
        ax.plot(distances, values, color=color, lw=0.8, label=label)
        if first is not None:
            ax.plot(first, decay.cosine_sum(inv_freq, np.array([first])), "v", color=color, ms=9)
    ax.axhline(0, color="black", lw=1)
    ylabel = "$B_m=\\sum_i\\cos(m\\,\\omega_i)$"
    ax.set(xlabel="distance m (tokens)", ylabel=ylabel, xlim=(0, length))
    ax.grid(alpha=0.3)
    ax.legend(loc="upper right", fontsize=8.5)
    return figure


def capabilities(inv_freq_NR: np.ndarray, length: int, num_others: int | None = None) -> Figure:
    """Draw D_H against the length, for the first 1, 2, 4, ... heads and for all of them.

    Args:
      inv_freq_NR: float64, radians per token, of each head.
      length: tokens, at least 2.
      num_others: number of keys that do not match; the D_H needed for accuracy .5 is drawn.
    """
    figure = Figure(figsize=(7.5, 5), layout="constrained")
    ax = figure.subplots()
    num_points = round(2 * math.log2(length)) + 1  # one per half octave
    lengths = np.unique(np.geomspace(1, length, num_points).round().astype(int))
    counts = {2**power for power in range(len(inv_freq_NR).bit_length())} | {len(inv_freq_NR)}
    for count, color in zip(sorted(counts), itertools.cycle(_COLORS), strict=False):
        values = [capability(inv_freq_NR[:count], m).value for m in lengths.tolist()]
        # Heads attain at least this value at every shorter length.
        values = np.maximum.accumulate(values[::-1])[::-1]
        label = "1 head" if count == 1 else f"{count} heads (at least)"
        ax.plot(lengths, values, "o-", color=color, ms=4, label=label)
    if num_others is not None:
        label = f"accuracy .5\namong {num_others} other keys"
        ax.axhline(required_capability(num_others), color=_COLORS[-1], lw=1, ls="--", label=label)
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.5g}")
    ax.set(xlabel="length M (tokens)", ylabel="capability $D_H$ (standard deviations)")
    ax.set_ylim(bottom=0)
    ax.grid(alpha=0.3)
    ax.legend()
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write a figure in the format of its suffix.

    Raises:
      ValueError: for an address, or a format that matplotlib does not write.
    """
    path = local(path)
    canvas = FigureCanvasAgg(figure)
    if path.suffix[1:] not in canvas.get_supported_filetypes():
        raise ValueError(f"--out and --figure take a .png, .svg or .pdf file, got {path}")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
