"""The leading figure: effective context against RoPE base, beside the predictions of theory."""

import dataclasses
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator

from evals.estimate.effective_context import UNDETERMINED, Estimate
from model.config import ModelConfig
from model.rotary import Rotary
from reporting import l50
from reporting.l50 import Shape
from reporting.members import Member, learned, tasks
from reporting.predictions import Predictions, predict
from utils.figures import (
    ARROW,
    CROSSED,
    DASHED,
    DOTTED,
    FAINT,
    INK,
    PAPER,
    WASH,
    format_value,
    handle,
    label_rows,
    label_values,
    mark_handle,
    new_figure,
    note,
    tag,
)

_THEORY = {  # field of Predictions: (legend, color, linestyle)
    "first_violation": ("theory: first distance with Bₘ < 0", INK, "-"),
    "quarter_period": ("quarter period of the slowest pair", FAINT, DASHED),
    "full_period": ("full period of the slowest pair", FAINT, DOTTED),
}

# Shifts along x, as a share of the distance to the next base: between members with the same base,
# and between a member and its D_H.
_MEMBER_SHIFT, _BOUND_SHIFT = 0.3, 0.08


def _shapes(members: Sequence[Member]) -> dict[str, tuple[float, Shape]]:
    """Return the shift along x and the shape of each task's marks.

    The leading task, bold, is not shifted. Other tasks that a member has learned are shifted
    alternately to the left and right, by a share of the distance to the next member.
    """
    names = tasks(members)
    names = names[:1] + [name for name in names[1:] if learned(members, name)]
    sides = max(1, math.ceil((len(names) - 1) / 2))
    shapes = {}
    for order, name in enumerate(names):
        shift = 0.28 * (-1) ** order * math.ceil(order / 2) / sides
        size, alpha, width = (5.5, 0.65, 1.2) if order else (7.5, 1.0, 2.0)
        shapes[name] = shift, Shape("os^DvP"[order % 6], size, alpha, width)
    return shapes


def draw_effective_context(members: Sequence[Member]) -> Figure:
    """Draw effective context of every member; controls, which have no base, in a second panel."""
    based = [member for member in members if member.base is not None]
    controls = [member for member in members if member.base is None]
    figure, panels = _panels(len(based), controls)
    first = panels[0][0]
    _set_vertical_axis(first, members)
    task = f" on {names[0]}" if (names := tasks(members)) else ""
    text = f"Effective context{task}{' against RoPE base' if based else ''}"
    first.set_title(text)  # across all panels
    label_rows(np.array(panels), ("distance (tokens, log scale)", "accuracy"))
    for above, below in panels:
        below.set_ylim(-0.03, 1.03)
        _draw_trained_lengths(above, members, label=above is panels[-1][0])
    if based:
        _draw_based(*panels.pop(0), based, members)
    if controls:
        _draw_controls(*panels.pop(0), controls, members)
    columns = _legend_columns(members)
    rows = max(map(len, columns))  # matplotlib fills column by column: pad with invisible entries
    handles = [
        h for column in columns for h in column + [handle("", ls="none")] * (rows - len(column))
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(columns))
    return figure


def _panels(num_based: int, controls: Sequence[Member]) -> tuple[Figure, list[tuple[Axes, Axes]]]:
    """Return the panels of bases and of controls: (effective context, accuracy) of each."""
    letters = [len(line) for name in _control_names(controls) for line in name.split("\n")]
    width = max(0.62, 0.155 * max(letters, default=0))  # of a control: names are side by side
    widths = [6.0] * bool(num_based) + [0.5 + width * len(controls)] * bool(controls)
    figure = new_figure(9.2, 7.2)
    ratios = {"width_ratios": widths, "height_ratios": [3, 1]}
    axes = figure.subplots(2, len(widths), squeeze=False, sharey="row", **ratios)
    panels = list(zip(*axes, strict=True))
    for above, below in panels:
        above.sharex(below)
        above.tick_params(labelbottom=False)
    return figure, panels


def _drawn_estimates(members: Sequence[Member]) -> list[Estimate]:
    names = _shapes(members)
    return [m.estimates[name] for m in members for name in names if name in m.estimates]


def _set_vertical_axis(ax: Axes, members: Sequence[Member]) -> None:
    """Set ticks at powers of two and, if needed, a lowest tick for estimates without L50."""
    longest = max(member.trained_length for member in members)
    estimates = _drawn_estimates(members)
    bounds = [member.theory.first_violation or math.inf for member in members]
    values = [value for e in estimates for value in (e.mark, e.ci_low) if e.has_l50 and value > 0]
    floor = math.floor(math.log2(min(longest / 8, *bounds, *values)))
    ticks = [2.0**power for power in range(floor, math.ceil(math.log2(longest)) + 4)]
    labels = [f"{tick:,.5g}" for tick in ticks]
    if without := {estimate.verdict for estimate in estimates if not estimate.has_l50}:
        label = ",\n".join(verdict.lower().replace("_", " ") for verdict in sorted(without))
        ticks, labels = [ticks[0] / 2, *ticks], [label, *labels]
    ax.set_yscale("log", base=2)
    ax.set_ylim(ticks[0] / 1.6, 12 * longest)  # cuts off theory, whose numbers are in the table
    ax.yaxis.set_major_locator(FixedLocator(ticks))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.set_yticklabels(labels)


def _bases(members: Sequence[Member]) -> list[float]:
    """Return the distinct bases of members, ascending."""
    return sorted({member.base for member in members if member.base is not None})


def _draw_trained_lengths(ax: Axes, members: Sequence[Member], *, label: bool) -> None:
    """Draw a line at each trained length, labelled at its right end."""
    lengths = sorted({member.trained_length for member in members})
    ax.axhspan(lengths[-1], ax.get_ylim()[1], color=WASH, zorder=0)
    for length in lengths:
        ax.axhline(length, color=INK, linewidth=0.9, zorder=1)
        if label:
            style = {"xycoords": ("axes fraction", "data"), "va": "center", "fontsize": 8.5}
            text = f"trained {length:,}" if lengths[1:] else f"trained\nlength {length:,}"
            note(ax, text, (1, length), (4, 0), **style)


def _draw_based(ax: Axes, below: Axes, based: Sequence[Member], members: Sequence[Member]) -> None:
    bases = _bases(based)
    low, high = math.log10(bases[0]), math.log10(bases[-1])
    margin = max(0.08 * (high - low), 0.15)
    low, high = low - margin, high + margin
    ax.set_xscale("log")
    ax.set_xlim(10**low, 10**high)
    label_values(ax.xaxis, {base: format_value(base) for base in bases})
    below.set_xlabel("RoPE base (log scale)")
    _draw_theory(ax, based)
    step = np.diff(np.log10(bases)).min(initial=0.2 * (high - low))
    for member in based:
        assert member.base is not None
        # Members with the same base, but other heads or trained lengths, are side by side.
        same = [other.index for other in based if other.base == member.base]
        shift = _MEMBER_SHIFT * (same.index(member.index) - (len(same) - 1) / 2)
        x = member.base * 10 ** (shift * step)
        differs = ",".join(_differing(member))
        if len(same) > 1 and differs:
            style = {"rotation": 90, "fontsize": 8, "ha": "center", "va": "bottom"}
            end = {"xycoords": ("data", "axes fraction"), "fc": PAPER, "pad": 0.5}
            tag([note(ax, differs, (x, 0), (0, 4), **end, **style)], member)
        _draw_member((ax, below), member, members, lambda shift, x=x: x * 10 ** (shift * step))


def _differing(member: Member) -> list[str]:
    """Return the fields in a member's label besides its base."""
    return [part for part in member.label.split(",") if "base=" not in part]


def _draw_theory(ax: Axes, based: Sequence[Member]) -> None:
    """Draw marks at each member's predictions, and lines of the predictions at every base.

    The first m with B_m < 0 is not monotone in the base, so marks are never joined: lines are
    computed at 401 bases, and only if members differ in nothing but the base.
    """
    top = ax.get_ylim()[1]
    for name, (_, color, _) in _THEORY.items():
        for member in based:
            value = getattr(member.theory, name) or math.inf
            if member.base is not None and value < top:
                tag(ax.plot(member.base, value, "_", color=color, ms=13, mew=1.8), member)
    families = {
        (dataclasses.replace(rotary, base=2.0), model.rope_head_dim, model.head_dim)
        for member in based
        if isinstance(rotary := (model := member.config.model).rotary, Rotary)
    }
    if len(families) > 1:
        return
    ((family, *_),) = families
    model, length = based[0].config.model, based[0].trained_length
    left, right = ax.get_xlim()
    bases, predictions = _predict_bases(
        dataclasses.replace(model, rotary=family), length, (max(left, 1.01), right), int(4 * top)
    )
    for name, (_, color, linestyle) in _THEORY.items():
        curve = [getattr(prediction, name) or math.nan for prediction in predictions]
        ax.plot(bases, curve, color=color, linestyle=linestyle, linewidth=1.1, zorder=1.5)


def _predict_bases(
    model: ModelConfig, length: int, ends: tuple[float, float], horizon: int
) -> tuple[np.ndarray, list[Predictions]]:
    """Return 401 bases between two, and the predictions for this model with each."""
    bases, predictions = np.geomspace(*ends, 401), []
    for base in bases.tolist():
        assert isinstance(model.rotary, Rotary)
        rotary: Any = dataclasses.replace(model.rotary, base=base)
        inv_freq = dataclasses.replace(model, rotary=rotary).position_table(length).inv_freq
        predictions.append(predict(inv_freq, horizon))
    return bases, predictions


def _control_names(controls: Sequence[Member]) -> list[str]:
    """Return labels without `rotary=`, with each setting on its own line."""
    return [re.sub("[,/]", "\n", member.label.replace("rotary=", "")) for member in controls]


def _draw_controls(
    ax: Axes, below: Axes, controls: Sequence[Member], members: Sequence[Member]
) -> None:
    ax.set_xlim(-0.6, len(controls) - 0.4)
    names = _control_names(controls)
    ax.set_xticks(range(len(controls)), names)
    letters = max(len(line) for name in names for line in name.split("\n"))
    if letters * len(controls) > 50:  # no room side by side
        below.tick_params(axis="x", rotation=90)
        figure = ax.get_figure(root=True)
        assert figure
        figure.set_figheight(figure.get_figheight() + 0.08 * letters)
    below.set_xlabel("controls")
    for panel in (ax, below):
        panel.grid(visible=False, axis="x")
    for x, member in enumerate(controls):
        window = member.config.model.window
        if isinstance(window, int):  # a pattern of windows has no single limit
            limit = ax.plot([x - 0.38, x + 0.38], [window, window], color=INK, lw=1.1)
            text = note(ax, f"window {window:,}", (x, window), (0, 7), ha="center", fontsize=8)
            tag([*limit, text], member)
        _draw_member((ax, below), member, members, lambda shift, x=x: x + shift)


def _draw_member(
    panels: tuple[Axes, Axes],
    member: Member,
    members: Sequence[Member],
    shift_x: Callable[[float], float],
) -> None:
    for task, (shift, shape) in _shapes(members).items():
        if task in member.estimates:
            x, estimate = shift_x(shift), member.estimates[task]
            l50.draw_l50(panels[0], x, member, estimate, shape)
            l50.draw_accuracies(panels[1], x, member, estimate, shape)
            if not shift and (bound := member.bounds[task]):
                l50.draw_bound(panels[0], shift_x(_BOUND_SHIFT), member, bound)


def _legend_columns(members: Sequence[Member]) -> list[list[Line2D]]:
    """Return columns of handles: measurements, theory, and special marks."""
    estimates = _drawn_estimates(members)
    measured = [
        mark_handle(f"measured: {task}", shape.marker, ms=shape.size, alpha=shape.alpha)
        for task, (_, shape) in _shapes(members).items()
    ]
    theory = [
        handle(label, color=color, ls=linestyle, lw=1.4)
        for label, color, linestyle in _THEORY.values()
        if any(member.base is not None for member in members)
    ]
    leading = tasks(members)[:1]
    if any(member.bounds.get(task) for member in members for task in leading):
        label = "D_H: bound for\nrandom codes"
        measured.append(mark_handle(label, "D", ms=6, mfc="none", mew=1.3))
    special = []
    if any(estimate.dips for estimate in estimates):
        label = "dips: one number does\nnot describe the curve"
        special.append(mark_handle(label, CROSSED, ms=7))
    special.append(mark_handle("worst bin (below)", "v", ms=5))
    if any(estimate.verdict.startswith(">") for estimate in estimates):
        special.append(mark_handle("beyond the longest\ndistance tested", ARROW, ms=9))
    if any(estimate.verdict == UNDETERMINED for estimate in estimates):
        special.append(handle("undetermined: the\ninterval only", lw=1.8))
    if not all(estimate.has_l50 for estimate in estimates):
        special.append(
            mark_handle("no effective context:\nsee the lowest tick", "x", ms=7, mew=1.8)
        )
    return [column for column in (measured, theory, special) if column]
