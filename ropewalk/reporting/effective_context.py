"""The leading figure: effective context against RoPE base, beside the predictions of theory."""

import dataclasses
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ropewalk.evals.estimate.effective_context import TOO_FEW_ANSWERS, UNDETERMINED, Estimate
from ropewalk.model.rotary import Rotary
from ropewalk.reporting import l50
from ropewalk.reporting.members import Member, describe_intervals, tasks
from ropewalk.reporting.page import Item, make_figure
from ropewalk.reporting.predictions import predict
from ropewalk.utils import figures
from ropewalk.utils.expressions import split_commas

_THEORY = {  # field of Predictions: (legend, color, linestyle)
    "first_violation": ("theory: first distance with Bₘ < 0", figures.INK, "-"),
    "quarter_period": ("quarter period of the slowest pair", figures.FAINT, figures.DASHED),
    "full_period": ("full period of the slowest pair", figures.FAINT, figures.DOTTED),
}
_SIZE = 7.5  # of marks, points

# Shift along x between members with the same base, as a share of the distance to the next base.
_MEMBER_SHIFT = 0.3
_NAME_WIDTH = 0.16  # of a name that is written upwards, inches
_LABEL_HEIGHT = 0.085  # of a label of two lines, share of the axis


def leading_figure(members: Sequence[Member]) -> Iterator[Item]:
    """Yield the figure of effective context on the leading task, if any was evaluated."""
    for task in tasks(members)[:1]:
        estimates = {m.label: m.estimates[task] for m in members if task in m.estimates}
        texts = "; ".join(f"{label}: {estimate}" for label, estimate in estimates.items())
        values = {"estimates": texts, "over": describe_intervals(members)}
        draw = draw_effective_context
        yield make_figure("Effective context", "effective_context", draw, members, **values)


def draw_effective_context(members: Sequence[Member]) -> Figure:
    """Draw effective context on the leading task of the members that were evaluated on it.

    Controls, and other members without a base, have a second panel.
    """
    task = tasks(members)[0]
    members = [member for member in members if task in member.estimates]
    estimates = [member.estimates[task] for member in members]
    based = [member for member in members if member.base is not None]
    controls = [member for member in members if member.base is None]
    names = _control_names(controls)
    letters = max((len(line) for name in names for line in name.split("\n")), default=0)
    width = 0.5 + max(0.62, 0.155 * letters) * len(controls)
    widths = [6.0] * bool(based) + [width] * bool(controls)
    figure = figures.new_figure(9.2, 7.2)
    ratios = {"width_ratios": widths, "height_ratios": [3, 1]}
    axes = figure.subplots(2, len(widths), squeeze=False, sharex="col", sharey="row", **ratios)
    first = axes[0, 0]
    lengths = sorted({e.length for e in estimates} - {m.trained_length for m in members})
    at = ", evaluated at " + ", ".join(f"{length:,}" for length in lengths) if lengths else ""
    first.set_title(f"Effective context on {task}{at}")  # across all panels
    _set_vertical_axis(first, members, estimates)
    axes[1, 0].set_ylim(-0.06, 1.06)
    figures.label_rows(axes.T, ("distance (tokens, log scale)", "accuracy"))
    if based:
        _draw_based(axes[0, 0], axes[1, 0], based, task, 7.5 * widths[0] / sum(widths))
    if controls:
        above, below = axes[:, -1]
        above.set_xlim(-0.6, len(controls) - 0.4)
        above.set_xticks(range(len(controls)), names)
        if letters * len(controls) > 50:  # no room side by side
            below.tick_params(axis="x", rotation=90)
            figure.set_figheight(figure.get_figheight() + 0.08 * letters)
        are_controls = all(member.is_control for member in controls)
        below.set_xlabel("controls" if are_controls else "no single base")
        for x, member in enumerate(controls):
            _draw_member(above, below, member, task, x)
    for ax in axes[0]:
        _draw_trained_lengths(ax, members, label=ax is axes[0, -1])
    figure.legend(handles=_legend(members, task), loc="outside lower center", ncols=3)
    return figure


def _set_vertical_axis(ax: Axes, members: Sequence[Member], estimates: Sequence[Estimate]) -> None:
    """Set limits that show every measurement; theory may be cut off, its numbers are in a table."""
    longest = max(member.trained_length for member in members)
    values = [getattr(member.theory, "first_violation", None) or math.inf for member in members]
    values += [v for e in estimates for v in (e.mark, e.ci_low) if e.has_l50 and v > 0]
    figures.token_axis(ax.yaxis)
    ax.set_ylim(min(longest / 8, *values) / 2, 12 * longest)


def _draw_trained_lengths(ax: Axes, members: Sequence[Member], *, label: bool) -> None:
    """Draw a line at each trained length, labeled at its right end; near ones share a label."""
    lengths = sorted({member.trained_length for member in members})
    bottom, top = ax.get_ylim()
    ax.axhspan(lengths[-1], top, color=figures.WASH, zorder=0)
    room = (top / bottom) ** _LABEL_HEIGHT
    near: list[list[int]] = []
    for length in lengths:
        ax.axhline(length, color=figures.INK, linewidth=0.9, zorder=1)
        if near and length < room * near[-1][-1]:
            near[-1].append(length)
        else:
            near.append([length])
    for group in near if label else ():
        style = {"xycoords": ("axes fraction", "data"), "va": "center", "fontsize": 8.5}
        text = f"trained\nlength{'s' * (len(group) > 1)} " + ",\n".join(f"{n:,}" for n in group)
        figures.note(ax, text, (1, math.sqrt(group[0] * group[-1])), (4, 0), **style)


def _draw_based(
    above: Axes, below: Axes, based: Sequence[Member], task: str, inches: float
) -> None:
    """Draw members by base, in panels of about this width."""
    bases = sorted({member.base for member in based if member.base})
    low, high = math.log10(bases[0]), math.log10(bases[-1])
    margin = max(0.08 * (high - low), 0.15)
    above.set_xscale("log")
    above.set_xlim(10 ** (low - margin), 10 ** (high + margin))
    figures.label_values(above.xaxis, {base: figures.format_value(base) for base in bases})
    below.set_xlabel("RoPE base (log scale)")
    if all(member.theory for member in based):
        _draw_theory(above, based)
    span = high - low + 2 * margin
    step = np.diff(np.log10(bases)).min(initial=(0.2 if len(bases) > 1 else 0.8) * span)
    groups = [[member for member in based if member.base == base] for base in bases]
    most = max(map(len, groups))
    name_width = _NAME_WIDTH * span / inches
    gap = min(max(step * _MEMBER_SHIFT, name_width), 0.9 * step / most)
    # Names stand beside each other; where there is no room, a mark has the number of its row.
    has_room, letters = gap >= name_width, 0
    for base, group in zip(bases, groups, strict=True):
        # Members with the same base, but other heads or trained lengths, are side by side.
        for place, (member, name) in enumerate(zip(group, _names_beside(group), strict=True)):
            x = base * 10 ** (gap * (place - (len(group) - 1) / 2))
            if len(group) > 1 and name:
                style = {"rotation": 90, "fontsize": 8 if has_room else 7}
                style |= {"ha": "center", "va": "bottom"}
                end = {"xycoords": ("data", "axes fraction"), "fc": figures.PAPER, "pad": 0.5}
                text = name if has_room else str(member.index + 1)
                letters = max(letters, len(text))
                start = 0, 4 if member.estimates[task].has_l50 else 14  # above the cross
                figures.tag([figures.note(above, text, (x, 0), start, **end, **style)], member)
            _draw_member(above, below, member, task, x)
    bottom, top = above.get_ylim()
    room = min(0.015 * letters, 0.4)  # share of the axis, so that marks are above the names
    above.set_ylim(top * (bottom / top) ** (1 / (1 - room)), top)
    above.set_yticks([tick for tick in above.get_yticks() if 1 <= tick <= top])


def _names_beside(group: Sequence[Member]) -> list[str]:
    """Return what the labels of members of one base do not share, in short."""
    parts = [
        [re.sub(r"^rotary=(\w+)\(.*", r"\1", part) for part in split_commas(_name(member))]
        for member in group
    ]
    shared = set.intersection(*map(set, parts))
    return [
        ",".join(part for part in names if part not in shared and not part.startswith("base="))
        for names in parts
    ]


def _name(member: Member) -> str:
    """Return the label of a member without the state of its training."""
    return member.label.partition(" (")[0]


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
                figures.tag(ax.plot(member.base, value, "_", color=color, ms=13, mew=1.8), member)
    families = {
        (dataclasses.replace(rotary, base=2.0), model.rope_head_dim, model.head_dim)
        for member in based
        if isinstance(rotary := (model := member.config.model).rotary, Rotary)
    }
    if len(families) > 1:
        return
    ((family, *_),) = families
    left, right = ax.get_xlim()
    bases, predictions = np.geomspace(max(left, 1.01), right, 401), []
    for base in bases.tolist():
        rotary: Any = dataclasses.replace(family, base=base)
        model = dataclasses.replace(based[0].config.model, rotary=rotary)
        inv_freq = model.position_table(based[0].trained_length).inv_freq
        predictions.append(predict(inv_freq, int(4 * top)))
    for name, (_, color, linestyle) in _THEORY.items():
        curve = [getattr(prediction, name) or math.nan for prediction in predictions]
        ax.plot(bases, curve, color=color, linestyle=linestyle, linewidth=1.1, zorder=1.5)


def _control_names(controls: Sequence[Member]) -> list[str]:
    """Return labels without `rotary=`, with each setting on its own line."""
    return [re.sub("[,/]", "\n", _name(member).replace("rotary=", "")) for member in controls]


def _draw_member(above: Axes, below: Axes, member: Member, task: str, x: float) -> None:
    """Draw a member's effective context and accuracies."""
    l50.draw_l50(above, x, member, member.estimates[task], _SIZE)
    l50.draw_accuracies(below, x, member, member.estimates[task], _SIZE)


def _legend(members: Sequence[Member], task: str) -> list[Line2D]:
    """Return an entry for each kind of mark that is drawn."""
    estimates = [member.estimates[task] for member in members]
    handles = [
        figures.mark_handle("measured; mean accuracy (below)", "o", ms=_SIZE),
        figures.mark_handle("worst bin (below)", "v", ms=5),
    ]
    if any(member.base is not None for member in members):
        handles += [
            figures.handle(label, color=color, ls=ls) for label, color, ls in _THEORY.values()
        ]
    if any(estimate.dips for estimate in estimates):
        label = "dips: one number does\nnot describe the curve"
        handles.append(figures.mark_handle(label, figures.CROSSED, ms=7))
    if any(estimate.verdict.startswith(">") for estimate in estimates):
        handles.append(
            figures.mark_handle("beyond the longest\ndistance tested", figures.ARROW, ms=9)
        )
    if any(estimate.verdict == UNDETERMINED for estimate in estimates):
        handles.append(
            figures.handle("undetermined: the\ninterval only", color=figures.INK, lw=1.8)
        )
    if not all(estimate.has_l50 for estimate in estimates):
        few = any(estimate.verdict == TOO_FEW_ANSWERS for estimate in estimates)
        label = "no effective context" + ",\nor too few answers" * few
        handles.append(figures.mark_handle(label, "x", ms=7, mew=1.8))
    return handles
