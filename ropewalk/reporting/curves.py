"""Figures with one curve per member: by distance, length, position, context, training tokens."""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from ropewalk import evals
from ropewalk.evals import rows as rows_lib
from ropewalk.evals.estimate.effective_context import MEASURED, Estimate
from ropewalk.evals.kinds import KINDS
from ropewalk.experiment.config import TRAINED
from ropewalk.reporting import l50
from ropewalk.reporting.labels import as_words, labels
from ropewalk.reporting.members import (
    Member,
    describe_intervals,
    describe_range,
    describe_trend,
    sort_tasks,
    tasks,
)
from ropewalk.reporting.page import Drawing, Item, make_figure
from ropewalk.reporting.task_view import Curve, Mark, Plot, view_of
from ropewalk.utils import figures
from ropewalk.utils.figures import End

_THEORY: dict[str, Any] = {"lw": 2.5, "zorder": 3}  # ticks at theory lengths
MIN_TRIALS = 10  # bins with fewer questions are not drawn


class Panel(NamedTuple):
    """One panel of a figure of curves.

    Attributes:
      curves: by member index, one curve for each of the plot's `ylabels`.
      levels: heights of dotted lines.
      length: context length of the evaluation, tokens; 0: several.
    """

    title: str
    curves: dict[int, Sequence[Curve]]
    levels: set[float]
    length: int = 0


ACCURACY = Plot(  # accuracy against distance; its captions are in captions.toml
    name="accuracy_by_distance",
    alternative="",
    caption="",
    xlabel="distance to the answer (tokens, log scale)",
    ylabels=("accuracy (exact match)",),
    mark="effective context",
    levels="chance",
    theory=True,
    share=True,
)


def by_distance(members: Sequence[Member]) -> Iterator[Item]:
    """Yield the figure of accuracy by distance, if a retrieval task was evaluated."""
    if panels := accuracy_panels(members):
        message = describe_trend(members, tasks(members)[0])
        title, arguments = "Accuracy by distance", (members, ACCURACY, panels, message)
        yield make_figure(title, ACCURACY.name, draw, *arguments, trials=MIN_TRIALS)


def accuracy_panels(members: Sequence[Member]) -> list[Panel]:
    """Return a panel per task, trained length, and other length of the evaluation.

    Members without `MIN_TRIALS` at a distance are left out.
    """
    several = len({member.trained_length for member in members}) > 1
    panels: dict[str, Panel] = {}
    for task in tasks(members):
        for member in sorted(members, key=lambda member: member.trained_length):
            estimate = member.estimates.get(task)
            if estimate and any(b.trials >= MIN_TRIALS for b in estimate.bins):
                trained = f"\ncontext length {member.trained_length:,}" if several else ""
                other = estimate.length != member.trained_length
                title = f"{task}{trained}" + f"\nevaluated at {estimate.length:,}" * other
                panel = panels.setdefault(title, Panel(title, {}, set(), estimate.length))
                panel.curves[member.index] = [_accuracy_curve(estimate)]
                panel.levels.add(estimate.chance)
    return list(panels.values())


def _accuracy_curve(estimate: Estimate) -> Curve:
    names = ("distance", "accuracy", "ci_low", "ci_high")
    bins = [b for b in estimate.bins if b.trials >= MIN_TRIALS]
    x, y, low, high = (np.array([getattr(b, name) for b in bins]) for name in names)
    half = estimate.chance + 0.5 * (estimate.ceiling - estimate.chance)
    mark = Mark(estimate.l50, half, f"L50 {estimate}") if estimate.verdict == MEASURED else None
    return Curve(x, y, low, high, mark)


def loss(members: Sequence[Member]) -> Iterator[Item]:
    """Yield the figure of training losses, if a run has metrics."""
    if any(member.losses for member in members):
        yield make_figure("Training loss", "loss", draw_loss, members)


def draw_loss(members: Sequence[Member]) -> Figure:
    """Draw training loss against training tokens, one curve per seed."""
    figure = figures.new_figure(9.2, 4.3)
    ax = figure.subplots()
    ends = []
    for member in members:
        for tokens, nats in member.losses:
            marker = "o" if len(tokens) == 1 else ""  # one point is no line
            figures.tag(ax.plot(tokens, nats, lw=1.6, marker=marker, **member.stroke.line), member)
        if member.losses:
            ends.append(_end(member, *member.losses[0]))
    ax.set_xlim(left=0)
    ax.xaxis.set_major_formatter(FuncFormatter(format_count))
    ax.set_xlabel("training tokens")
    ax.set_ylabel("training loss (nats per token)")
    figures.set_message(
        figure, describe_range("Training loss at the end", {e.name: e.y for e in ends})
    )
    figures.label_ends(ax, ends)
    return figure


def _end(member: Member, x: Sequence[float] | np.ndarray, y: Sequence[float] | np.ndarray) -> End:
    return End(float(x[-1]), float(y[-1]), member.words, member.stroke.color, member)


def format_count(value: float, _=None) -> str:
    """Return 1500000 as 1.5M."""
    for unit, name in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:.3g}{name}"
    return f"{value:g}"


def _draw_trained_lengths(ax: Axes, members: Sequence[Member], *, below: float) -> None:
    """Draw a vertical line at each trained length below the end of the axis."""
    for length in sorted({m.trained_length for m in members if m.trained_length < below}):
        ax.axvline(length, color=figures.INK, linewidth=0.9, zorder=1)
        style = {"va": "top", "ha": "right", "fontsize": 8, "rotation": 90, "zorder": 6}
        box = {"fc": figures.PAPER, "ec": "none", "alpha": 0.7, "pad": 1}
        end, text = ("data", "axes fraction"), f"trained {length:,}"
        figures.note(ax, text, (length, 1), (-2, -2), xycoords=end, bbox=box, **style)


def by_length(members: Sequence[Member]) -> Iterator[Item]:
    """Yield a figure of each comparable task that a member was evaluated on at several lengths."""
    names = sort_tasks(
        task
        for member in members
        for task, _ in member.trained
        if len(member.select_task(task)) > 1 and view_of(task).compared
    )
    title, over = "By context length", describe_intervals(members)
    for task in names:
        yield make_figure(title, "length", draw_by_length, members, task, name=task, over=over)


def draw_by_length(members: Sequence[Member], task: str) -> Figure:
    """Draw a task's number against evaluated length; for retrieval also L50 and the worst bin."""
    kind = evals.parse(task).kind
    retrieval = kind == "retrieval"
    figure, axes = figures.grid(1 + 2 * retrieval, height=3.6, columns=2)
    panels = axes[:, 0]
    ends: list[list[End]] = [[] for _ in panels]
    shown = [member for member in members if member.select_task(task)]
    all_lengths, trained = set(), {member.trained_length for member in shown}
    for number, member in enumerate(shown):
        results = member.select_task(task)
        options = {"lw": 1.7, "marker": "o", "ms": 4, **member.stroke.line}
        lengths = [m.length for m in results]
        all_lengths |= set(lengths)
        curves = {0: [m.value for m in results]}
        if retrieval:
            points = [(m.length, member, m.estimate) for m in results]
            figures.tag(l50.draw_line(panels[1], points, number, len(shown)), member)
            marks = [(m.length, m.estimate.mark) for m in results if m.estimate.has_l50]
            ends[1] += [_end(member, *zip(*marks, strict=True))] if marks else []
            curves[2] = [m.estimate.worst.accuracy for m in results]
        for panel, values in curves.items():
            figures.tag(panels[panel].plot(lengths, values, **options), member)
            if math.isfinite(values[-1]):
                ends[panel].append(_end(member, lengths, values))
    for ax in panels:
        ax.set_xscale("log", base=2)
        for length in trained:
            ax.axvline(length, color=figures.INK, linewidth=0.9, zorder=1)
        figures.label_lengths(ax.xaxis, {*all_lengths, *trained}, dict.fromkeys(trained, "trained"))
    figures.set_title(panels[0], KINDS[kind].name)
    if kind != "likelihood":
        panels[0].set_ylim(-0.03, 1.03)
    if retrieval:
        figures.set_title(panels[2], "accuracy of the worst bin")
        panels[2].set_ylim(-0.03, 1.03)
        figures.set_title(panels[1], "effective context (tokens)")
        known = sorted(all_lengths)
        panels[1].plot(known, known, zorder=1, **figures.REFERENCE)  # L50 cannot exceed the context
        figures.token_axis(panels[1].yaxis)
    figures.share_xlabel(figure, axes, "context length evaluated (tokens)")
    longest = max(all_lengths)
    values = {e.name: e.y for e in ends[0] if e.x == longest}
    figures.set_message(
        figure, describe_range(f"{task}, {KINDS[kind].name} at {longest:,}", values)
    )
    for ax, ends_of_panel in zip(panels, ends, strict=True):
        figures.label_ends(ax, ends_of_panel)
    return figure


def trained_length(members: Sequence[Member]) -> Iterator[Item]:
    """Yield the figure of the leading task, if models have several trained lengths."""
    for task in tasks(members)[:1]:
        if groups := group_trained_lengths(members, task):
            draw, over = draw_trained_lengths, describe_intervals(members)
            yield make_figure("Trained length", "trained_length", draw, groups, task, over=over)


def group_trained_lengths(members: Sequence[Member], task: str) -> list[list[Member]]:
    """Return groups of members with equal models and several trained lengths, ascending.

    A group without an effective context is left out.
    """
    series: dict[object, list[Member]] = {}
    for member in members:
        if task in member.estimates:
            series.setdefault(member.config.model, []).append(member)
    measured = [g for g in series.values() if any(m.estimates[task].has_l50 for m in g)]
    groups = [sorted(group, key=lambda m: m.trained_length) for group in measured]
    return [group for group in groups if len({member.trained_length for member in group}) > 1]


def draw_trained_lengths(groups: Sequence[Sequence[Member]], task: str) -> Figure:
    """Draw L50 against trained length, a line per group of `group_trained_lengths`."""
    figure = figures.new_figure(9.2, 5)
    ax = figure.subplots()
    names = labels([group[0].config for group in groups])
    ends = []
    for number, (series, name) in enumerate(zip(groups, names, strict=True)):
        points = [(m.trained_length, m, m.estimates[task]) for m in series]
        l50.draw_line(ax, points, number, len(groups))
        marks = [(m.trained_length, e.mark) for _, m, e in points if e.has_l50]
        ends.append(End(*marks[-1], as_words(name), series[0].stroke.color, series[0]))
    lengths = sorted({member.trained_length for group in groups for member in group})
    ax.set_xscale("log", base=2)
    figures.token_axis(ax.yaxis)
    ax.set_xlim(lengths[0] / 1.3, lengths[-1] * 1.3)
    ax.plot(lengths, lengths, zorder=1, **figures.REFERENCE)
    figures.label_lengths(ax.xaxis, lengths)
    ax.set_xlabel("trained length T (tokens, log scale)")
    ax.set_ylabel("effective context (tokens, log scale)")
    values = {end.name: end.y for end in ends}
    subject = f"Effective context on {task} at the longest trained length"
    figures.set_message(figure, describe_range(subject, values))
    figures.label_ends(ax, ends)
    dotted = figures.handle("trained length", **figures.REFERENCE)
    figures.add_legend(figure, [dotted], below=True)
    return figure


def task_figures(members: Sequence[Member]) -> Iterator[Item]:
    """Yield the figures that tasks declare."""
    for plot, panels in task_plots(members):
        captions = {"alternative": plot.alternative, "caption": plot.caption}
        yield plot.section, "", Drawing(plot.name, partial(draw, members, plot, panels), captions)


def task_plots(members: Sequence[Member]) -> list[tuple[Plot, list[Panel]]]:
    """Return the plots that tasks declare (`TaskView.plot`), with the panels that have curves."""
    evaluated = {(m.task, m.length) for member in members for m in member.measurements}
    names: dict[tuple[Plot, str, int], list[str]] = {}
    for name, length in sorted(
        evaluated, key=lambda key: (view_of(key[0]).order, len(key[0]), key)
    ):
        if plot := view_of(name).plot:
            # Tasks without parameters need no title.
            title = "" if plot.together or name.isidentifier() else f"{name}\n"
            names.setdefault((plot, title, length), []).append(name)
    panels: dict[Plot, list[Panel]] = {}
    for (plot, title, length), group in names.items():
        curves = {}
        for member in members:
            results = [m for m in member.measurements if m.task in group and m.length == length]
            trained = [m.rows for m in results if m.variant == TRAINED]
            rows = map(rows_lib.concatenate, (trained, [m.rows for m in results]))
            if trained and (member_curves := view_of(group[0]).curves(*rows)):
                curves[member.index] = member_curves
        if curves:
            levels = {0.0} if plot.levels else set()
            panel = Panel(f"{title}context of {length:,}", curves, levels, length)
            panels.setdefault(plot, []).append(panel)
    return list(panels.items())


def draw(
    members: Sequence[Member], plot: Plot, panels: Sequence[Panel], message: str = ""
) -> Figure:
    """Draw panels of curves, with one row of axes per y label.

    The title is the message, or the range of the last values of the last panel's curves.
    """
    several = len(plot.ylabels) > 1
    options: dict[str, Any] = {"sharex": "col"} if several else {}
    options |= {"height": 2.6 if several else 3.4, "sharey": "row" if several else True}
    figure, axes = figures.grid(len(panels), rows=len(plot.ylabels), columns=2, **options)
    labels = [label if "\n" in label else figures.folded(label, 30) for label in plot.ylabels]
    figures.label_rows(axes, labels)
    shown = [m for m in members if any(m.index in panel.curves for panel in panels)]
    theory: list[Line2D] = []
    has_marks = False
    for panel, column in zip(panels, axes, strict=True):
        in_panel = [member for member in shown if member.index in panel.curves]
        for member in in_panel:
            for ax, curve in zip(column, panel.curves[member.index], strict=True):
                _draw_curve(ax, plot, member, curve)
                has_marks |= curve.mark is not None
        for ax in column:
            if plot.y_scale == "symlog":
                ax.set_yscale("symlog", linthresh=0.01)
                ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            elif plot.y_scale == "log2":
                figures.token_axis(ax.yaxis)
            for level in panel.levels:
                ax.axhline(level, zorder=1, **figures.REFERENCE)
            if plot.share:
                ax.set_ylim(-0.03, 1.03)
            for member in in_panel if plot.theory else ():
                if (length := member.theory_length or panel.length) < panel.length:
                    foot, style = ax.get_xaxis_transform(), {"color": member.stroke.color}
                    tick = ax.plot([length] * 2, [0, 0.07], transform=foot, **style, **_THEORY)
                    figures.tag(tick, member, f"{member.label}: theory length {length:,}")
                    theory = [figures.mark_handle("theory length, at the axis", "|", ms=9, mew=2.5)]
            if plot.trained:
                _draw_trained_lengths(ax, in_panel, below=panel.length)
        figures.set_title(column[0], panel.title)
        _set_x_axis(column[-1], plot, panel)
        figures.set_xlabel(column[-1], plot.xlabel)
    for panel, column in zip(panels, axes, strict=True):
        for row, ax in enumerate(column):
            curves = [(m, panel.curves[m.index][row]) for m in shown if m.index in panel.curves]
            figures.label_ends(ax, [_end(m, c.x, c.y) for m, c in curves if math.isfinite(c.y[-1])])
    last = {m.words: curves[0].y[-1] for m in shown if (curves := panels[-1].curves.get(m.index))}
    ylabel = plot.ylabels[0].replace("\n", " ").partition(" (")[0]
    subject = f"{ylabel[0].upper()}{ylabel[1:]}, where curves end"
    figures.set_message(figure, message or describe_range(subject, last))
    marks = [figures.mark_handle(plot.mark, "D")] if has_marks else []
    levels = [figures.handle(plot.levels, **figures.REFERENCE)] if plot.levels else []
    figures.add_legend(figure, [*marks, *levels, *theory], below=True)
    return figure


def _set_x_axis(ax: Axes, plot: Plot, panel: Panel) -> None:
    if plot.x_scale == "log2":
        figures.token_axis(ax.xaxis)
    else:
        values = {float(x) for curves in panel.curves.values() for c in curves for x in c.x}
        ax.set_xscale("log")
        figures.label_values(ax.xaxis, {x: figures.format_value(x) for x in values})


def _draw_curve(ax: Axes, plot: Plot, member: Member, curve: Curve) -> None:
    color = member.stroke.color
    line: dict[str, Any] = {"marker": "o", **member.stroke.line}
    if plot.bars:
        spread = curve.y - curve.low, curve.high - curve.y
        bars = ax.errorbar(curve.x, curve.y, np.abs(spread), lw=1.5, ms=4, **line)
        figures.tag(bars.get_children(), member)
    else:
        options = {"color": color, "alpha": 0.13, "linewidth": 0}
        band = ax.fill_between(curve.x, curve.low, curve.high, **options)
        figures.tag([band, *ax.plot(curve.x, curve.y, lw=1.7, ms=3.2, **line)], member)
    if curve.mark:
        style = {"color": color, "mec": figures.PAPER, "mew": 0.8, "zorder": 5}
        mark = ax.plot(curve.mark.x, curve.mark.y, "D", ms=6.5, **style)
        figures.tag(mark, member, f"{member.label}: {curve.mark.text}")
