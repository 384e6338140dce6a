"""The figures that show curves: accuracy by distance, training loss, perplexity by position."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from evals.effective_context import MEASURED, Estimate
from reporting.members import Member, tasks
from reporting.style import FAINT, INK, Look, looks, member_legend, tag, token_axis

MIN_TRIALS = 10  # fewer questions than this at a distance are not drawn
_SIZE = (9.2, 4.3)


def accuracy_by_distance(members: Sequence[Member]) -> Figure:
    """One panel a task: share of exact answers against distance, with 95% intervals."""
    names = tasks(members)
    figure = Figure(figsize=(10, 4.3), layout="constrained")
    panels = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
    look = looks(members)
    for ax, task in zip(panels, names, strict=True):
        shown = [member for member in members if task in member.estimates]
        for chance in {member.estimates[task].chance for member in shown}:
            ax.axhline(chance, color=FAINT, linewidth=1, linestyle=(0, (1, 2)), zorder=1)
        for member in shown:
            _accuracy(ax, member, member.estimates[task], look[member.index])
        ax.set_xscale("log", base=2)
        token_axis(ax.xaxis)
        ax.set_ylim(-0.03, 1.03)
        ax.set_title(task)
    figure.supxlabel("distance to the answer (tokens, log scale)", fontsize=10)
    panels[0].set_ylabel("accuracy (exact match)")
    half = Line2D([], [], marker="D", mfc="white", color=INK, ls="none", label="effective context")
    chance = Line2D([], [], color=FAINT, ls=(0, (1, 2)), lw=1, label="chance")
    member_legend(figure, members, [half, chance])
    return figure


def _accuracy(ax: Axes, member: Member, estimate: Estimate, look: Look) -> None:
    cells = [cell for cell in estimate.cells if cell.trials >= MIN_TRIALS]
    distance = [cell.distance for cell in cells]
    low, high = ([getattr(cell, end) for cell in cells] for end in ("ci_low", "ci_high"))
    accuracy = [cell.accuracy for cell in cells]
    band = ax.fill_between(distance, low, high, color=look.color, alpha=0.14, linewidth=0)
    line = ax.plot(
        distance, accuracy, color=look.color, ls=look.linestyle, lw=1.7, marker="o", ms=3.2
    )
    tag([band, *line], member)
    if estimate.verdict == MEASURED:
        half = estimate.chance + 0.5 * (estimate.ceiling - estimate.chance)
        mark = ax.plot(
            estimate.l50, half, marker="D", ms=6.5, mfc="white", mec=look.color, mew=1.6, zorder=5
        )
        tag(mark, member)


def loss(members: Sequence[Member]) -> Figure:
    """Training loss against tokens seen, one curve a seed."""
    figure = Figure(figsize=_SIZE, layout="constrained")
    ax = figure.subplots()
    look = looks(members)
    for member in members:
        for tokens, nats in member.losses:
            style = look[member.index]
            tag(ax.plot(tokens, nats, lw=1.6, color=style.color, ls=style.linestyle), member)
    ax.set_xlim(left=0)
    ax.xaxis.set_major_formatter(FuncFormatter(compact))
    ax.set_xlabel("tokens seen")
    ax.set_ylabel("training loss (nats/token)")
    ax.set_title("Training loss")
    member_legend(figure, members)
    return figure


def compact(value: float, _=None) -> str:
    """1500000 as 1.5M."""
    for unit, name in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:.3g}{name}"
    return f"{value:g}"


def perplexity_by_position(members: Sequence[Member]) -> Figure:
    """Perplexity of held-out text against the place in the document, with 95% intervals."""
    figure = Figure(figsize=_SIZE, layout="constrained")
    ax = figure.subplots()
    look = looks(members)
    shown = [member for member in members if member.perplexity]
    for member in shown:
        curve, style = member.perplexity, look[member.index]
        assert curve is not None
        positions = np.maximum(curve.positions, 1)
        low, high = (np.exp(curve.nll + sign * 1.96 * curve.error) for sign in (-1, 1))
        band = ax.fill_between(positions, low, high, color=style.color, alpha=0.13, linewidth=0)
        line = ax.plot(positions, np.exp(curve.nll), color=style.color, ls=style.linestyle, lw=1.7)
        tag([band, *line], member)
    length = max(member.trained_length for member in shown)
    if any(curve.positions[-1] > length for m in shown if (curve := m.perplexity)):
        ax.axvline(length, color=INK, linewidth=0.9)
        ax.annotate(
            "trained length",
            (length, 1),
            (4, -2),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            va="top",
            fontsize=8.5,
        )
    for axis, set_scale in ((ax.xaxis, ax.set_xscale), (ax.yaxis, ax.set_yscale)):
        set_scale("log", base=2)
        token_axis(axis)
    ax.set_xlabel("position in the document (tokens)")
    ax.set_ylabel("perplexity of held-out text (log scale)")
    ax.set_title("Perplexity by position")
    member_legend(figure, shown)
    return figure
