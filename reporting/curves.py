"""The figures of curves, one a member: by distance, length, position, context, tokens seen."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

import evals
from data.figures import Curve, Mark, Plot
from evals import rows as rows_lib
from evals.estimate.effective_context import MEASURED, NOT_LEARNED, Estimate
from evals.kinds import KINDS
from experiment.config import TRAINED
from reporting import l50
from reporting.looks import FAINT, INK
from reporting.members import Member, at_several_lengths, tasks
from reporting.style import (
    folded,
    grid,
    handle,
    marked,
    marked_lengths,
    member_legend,
    tag,
    token_axis,
)

MIN_TRIALS = 10  # fewer questions than this at a distance are not drawn
_SIZE = (9.2, 4.3)
_DOTS = (0, (1, 2))


class Panel(NamedTuple):
    """One panel of a figure of curves.

    Attributes:
      curves: of each member that has any, by its index; one for each of the plot's `ylabels`.
      levels: where dotted lines lie.
      length: context length of the evaluation, tokens; 0: of no single one.
    """

    title: str
    curves: dict[int, Sequence[Curve]]
    levels: set[float]
    length: int = 0


def accuracy_by_distance(members: Sequence[Member]) -> Figure:
    """A panel a task and trained length: exact answers against distance, with 95% intervals."""
    return draw(members, _ACCURACY, accuracy_panels(members))


_ACCURACY = Plot(
    name="accuracy_by_distance",
    alternative="",
    caption="",
    xlabel="distance to the answer (tokens, log scale)",
    ylabels=("accuracy (exact match)",),
    mark="effective context",
    levels="chance",
    share=True,
)


def accuracy_panels(members: Sequence[Member]) -> list[Panel]:
    """By task and trained length, the members that were asked enough to be drawn."""
    several = len({member.trained_length for member in members}) > 1
    found: dict[str, Panel] = {}
    for task in tasks(members):
        for member in sorted(members, key=lambda member: member.trained_length):
            estimate = member.estimates.get(task)
            if estimate and any(each.trials >= MIN_TRIALS for each in estimate.bins):
                trained = f"\ntrained on {member.trained_length:,}" if several else ""
                title = f"{folded(task)}{trained}"
                panel = found.setdefault(title, Panel(title, {}, set()))
                panel.curves[member.index] = [_accuracy(estimate)]
                panel.levels.add(estimate.chance)
    return list(found.values())


def _accuracy(estimate: Estimate) -> Curve:
    names = ("distance", "accuracy", "ci_low", "ci_high")
    bins = [each for each in estimate.bins if each.trials >= MIN_TRIALS]
    x, y, low, high = (np.array([getattr(each, name) for each in bins]) for name in names)
    half = estimate.chance + 0.5 * (estimate.ceiling - estimate.chance)
    mark = Mark(estimate.l50, half, f"L50 {estimate}") if estimate.verdict == MEASURED else None
    return Curve(x, y, low, high, mark)


def loss(members: Sequence[Member]) -> Figure:
    """Training loss against tokens seen, one curve a seed."""
    figure = Figure(figsize=_SIZE, layout="constrained")
    ax = figure.subplots()
    for member in members:
        for tokens, nats in member.losses:
            color, dashes = member.look.color, member.look.linestyle
            tag(ax.plot(tokens, nats, lw=1.6, color=color, ls=dashes), member)
    ax.set_xlim(left=0)
    ax.xaxis.set_major_formatter(FuncFormatter(compact))
    ax.set_xlabel("tokens seen")
    ax.set_ylabel("training loss (nats per token)")
    ax.set_title("Training loss")
    member_legend(figure, members)
    return figure


def compact(value: float, _=None) -> str:
    """1500000 as 1.5M."""
    for unit, name in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:.3g}{name}"
    return f"{value:g}"


def _trained_lines(ax: Axes, members: Sequence[Member], *, below: float) -> None:
    """A vertical line at each trained length that lies below the end of the axis."""
    for length in sorted({m.trained_length for m in members if m.trained_length < below}):
        ax.axvline(length, color=INK, linewidth=0.9, zorder=1)
        place = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
        text = {"va": "top", "ha": "right", "fontsize": 8, "rotation": 90, "zorder": 6}
        box = {"fc": "white", "ec": "none", "alpha": 0.7, "pad": 1}
        ax.annotate(f"trained {length:,}", (length, 1), (-2, -2), bbox=box, **place, **text)


def by_length_tasks(members: Sequence[Member]) -> list[str]:
    """Tasks that a member was asked at several lengths."""
    found = at_several_lengths(members)
    return [task for task in found if evals.parse(task).compared]


def by_length(members: Sequence[Member], task: str) -> Figure:
    """What one task measures, by evaluated context length; of retrieval, L50 too."""
    kind = evals.parse(task).kind
    retrieval = kind == "retrieval"
    figure, panels = grid(1 + 2 * retrieval, height=4)
    shown = [member for member in members if member.of_task(task)]
    for place, member in enumerate(shown):
        found = member.of_task(task)
        style = member.look
        options = {"color": style.color, "ls": style.linestyle, "lw": 1.7, "marker": "o", "ms": 4}
        lengths, values = [m.length for m in found], [m.value for m in found]
        tag(panels[0].plot(lengths, values, **options), member)
        if retrieval:
            # Side by side: what is farther than could be asked lies on one height.
            aside = 2 ** (0.04 * (place - (len(shown) - 1) / 2))
            places = [aside * length for length in lengths]
            estimates = [(member, each.estimate) for each in found]
            tag(l50.joined(panels[1], places, estimates), member)
            worst = [each.estimate.worst.accuracy for each in found]
            tag(panels[2].plot(lengths, worst, **options), member)
    asked = [measured for member in shown for measured in member.of_task(task)]
    lengths = sorted({measured.length for measured in asked})
    trained = {member.trained_length for member in shown}
    for ax in panels:
        ax.set_xscale("log", base=2)
        for length in trained:
            ax.axvline(length, color=INK, linewidth=0.9, zorder=1)
        marked_lengths(ax.xaxis, {*lengths, *trained}, dict.fromkeys(trained, "trained"))
        ax.set_xlabel("context length evaluated (tokens)")
    panels[0].set_title(f"{folded(task)}:\n{KINDS[kind].name}", fontsize=10)
    if kind != "likelihood":
        panels[0].set_ylim(-0.03, 1.03)
    if retrieval:
        panels[2].set_title("accuracy of the worst bin", fontsize=10)
        panels[2].set_ylim(-0.03, 1.03)
        panels[1].set_title("effective context (tokens)", fontsize=10)
        if all(measured.estimate.verdict == NOT_LEARNED for measured in asked):
            box = {"fc": "white", "ec": "none", "pad": 2}
            middle = {"xycoords": "axes fraction", "ha": "center", "color": FAINT, "bbox": box}
            panels[1].annotate("no member learned it", (0.5, 0.5), **middle)
        # One that can be asked up to here has seen all of its context.
        panels[1].plot(lengths, lengths, color=FAINT, lw=1, ls=_DOTS, zorder=1)
        panels[1].set_yscale("log", base=2)
        token_axis(panels[1].yaxis)
    member_legend(figure, members)
    return figure


def declared(members: Sequence[Member]) -> list[tuple[Plot, list[Panel]]]:
    """What tasks declare to be drawn, as far as there is something to draw."""
    asked = {(m.task, m.length) for member in members for m in member.measurements}
    tasks_of: dict[tuple[Plot, str, int], list[str]] = {}
    for name, length in sorted(
        asked, key=lambda key: (evals.parse(key[0]).order, len(key[0]), key)
    ):
        if plot := evals.parse(name).plot:
            # Whatever has no parameters needs no name.
            title = "" if plot.together or name.isidentifier() else f"{folded(name)}\n"
            tasks_of.setdefault((plot, title, length), []).append(name)
    found: dict[Plot, list[Panel]] = {}
    for (plot, title, length), names in tasks_of.items():
        curves = {}
        for member in members:
            every = [m for m in member.measurements if m.task in names and m.length == length]
            own = [m.rows for m in every if m.variant == TRAINED]
            results = map(rows_lib.concatenate, (own, [m.rows for m in every]))
            if own and (of_member := evals.parse(names[0]).curves(*results)):
                curves[member.index] = of_member
        if curves:
            levels = {0.0} if plot.levels else set()
            panel = Panel(f"{title}context of {length:,}", curves, levels, length)
            found.setdefault(plot, []).append(panel)
    return list(found.items())


def draw(members: Sequence[Member], plot: Plot, panels: Sequence[Panel]) -> Figure:
    """A figure of curves."""
    stack = len(plot.ylabels)
    if stack == 1:
        figure, places = grid(len(panels), height=3.9, sharey=True)
        stacks = [places]
        figure.supylabel(plot.ylabels[0], fontsize=10)
    else:
        size = min(10, 5.6 + 2.2 * len(panels)), 2.8 * stack
        figure = Figure(figsize=size, layout="constrained")
        stacks = figure.subplots(stack, len(panels), sharex="col", sharey="row", squeeze=False)
        for row, label in zip(stacks, plot.ylabels, strict=True):
            row[0].set_ylabel(label)
    shown = [m for m in members if any(m.index in panel.curves for panel in panels)]
    for panel, *column in zip(panels, *stacks, strict=True):
        here = [member for member in shown if member.index in panel.curves]
        for member in here:
            for ax, curve in zip(column, panel.curves[member.index], strict=True):
                _curve(ax, plot, member, curve)
        for ax in column:
            if plot.y_scale == "symlog":
                ax.set_yscale("symlog", linthresh=0.01)
            for level in panel.levels:
                ax.axhline(level, color=FAINT, lw=1, ls=_DOTS, zorder=1)
            if plot.share:
                ax.set_ylim(-0.03, 1.03)
            if plot.trained:
                _trained_lines(ax, here, below=panel.length)
        column[0].set_title(panel.title, fontsize=10)
        _x_axis(column[-1], plot, panel)
    if plot.y_scale == "log2":
        for row in stacks:
            row[0].set_yscale("log", base=2)
            token_axis(row[0].yaxis)
    figure.supxlabel(plot.xlabel, fontsize=10)
    mark = handle(plot.mark, marker="D", mfc="white", color=INK, ls="none")
    level = handle(plot.levels, color=FAINT, ls=_DOTS, lw=1)
    member_legend(figure, shown, [each for each in (mark, level) if each.get_label()])
    return figure


def _x_axis(ax: Axes, plot: Plot, panel: Panel) -> None:
    if plot.x_scale == "log2":
        ax.set_xscale("log", base=2)
        token_axis(ax.xaxis, num_ticks=8)
    else:
        values = {float(x) for curves in panel.curves.values() for each in curves for x in each.x}
        ax.set_xscale("log")
        marked(ax.xaxis, {x: f"{x:,.5g}" if x < 1e5 else f"{x:.0e}" for x in values})


def _curve(ax: Axes, plot: Plot, member: Member, curve: Curve) -> None:
    color = member.look.color
    line: dict[str, Any] = {"color": color, "ls": member.look.linestyle, "marker": "o"}
    if plot.bars:
        spread = curve.y - curve.low, curve.high - curve.y
        bars = ax.errorbar(curve.x, curve.y, np.abs(spread), lw=1.5, ms=4, **line)
        tag(bars.get_children(), member)
    else:
        options = {"color": color, "alpha": 0.13, "linewidth": 0}
        band = ax.fill_between(curve.x, curve.low, curve.high, **options)
        tag([band, *ax.plot(curve.x, curve.y, lw=1.7, ms=3.2, **line)], member)
    if curve.mark:
        style_of_mark = {"mfc": "white", "mec": color, "mew": 1.6, "zorder": 5}
        mark = ax.plot(curve.mark.x, curve.mark.y, "D", ms=6.5, **style_of_mark)
        tag(mark, member, f"{member.label}: {curve.mark.text}")
