"""Heat maps: accuracy by context length and depth, and matrices of variants."""

from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from experiment.config import TRAINED
from reporting.measurements import Measurement
from reporting.members import Member, sort_tasks, tasks
from reporting.task_view import view_of
from utils.figures import (
    EMPTY,
    FAINT,
    INK,
    ON_BRIGHT,
    ON_DARK,
    folded,
    grid,
    new_figure,
    tag,
)

# Lightness rises evenly from dark blue to yellow, so the order survives every kind of color
# blindness; the papers' green to red does not.
MAP = matplotlib.colormaps["cividis"]


def _draw_cell(ax: Axes, x: float, y: float, width: float, height: float, color) -> Rectangle:
    patch = Rectangle((x, y), width, height, facecolor=color, edgecolor="white", linewidth=0.6)
    ax.add_patch(patch)
    return patch


def _set_lengths_axis(ax: Axes, member: Member, lengths: Sequence[int]) -> None:
    """Label one column per context length, with a line before those beyond the trained length."""
    ax.set_xlim(0, len(lengths))
    ax.set_xticks(np.arange(len(lengths)) + 0.5, [f"{length:,}" for length in lengths])
    within = sum(length <= member.trained_length for length in lengths)
    if 0 < within < len(lengths):
        ax.axvline(within, color=INK, lw=1.4)
    ax.grid(visible=False)
    ax.set_title(folded(member.label, 22), fontsize=9)


def depth_tasks(members: Sequence[Member]) -> list[str]:
    """Return the retrieval tasks whose rows record the depth of the answer in the context."""
    return [
        name
        for name in tasks(members)
        if any(view_of(name).grid(m.rows) for x in members for m in x.select_task(name)[:1])
    ]


def draw_lengths(members: Sequence[Member], task: str) -> Figure:
    """Draw accuracy by context length and depth, a panel per member."""
    shown = [(member, results) for member in members if (results := member.select_task(task))]
    figure, axes = grid(len(shown), height=2.9, columns=4, sharey=True)
    panels = axes[:, 0].tolist()
    for ax, (member, results) in zip(panels, shown, strict=True):
        for x, measured in enumerate(results):
            column = f"{member.label} at {measured.length:,}"
            cells = view_of(task).grid(measured.rows)
            for name, low, high, accuracy, count in zip(*(cells or ()), strict=True):
                patch = _draw_cell(ax, x, low, 1, high - low, MAP(accuracy) if count else EMPTY)
                text = f"{accuracy:.2f} of {count}" if count else "not tested"
                tag([patch], member, f"{column}, {name}: {text}")
        _set_lengths_axis(ax, member, [measured.length for measured in results])
        ax.set_yticks([0, 0.5, 1], ["start", "middle", "end"])
    panels[0].set_ylim(1, 0)
    figure.supxlabel("context length (tokens)")
    figure.supylabel("depth of the answer")
    colors, label = ScalarMappable(Normalize(0, 1), MAP), "accuracy (exact match)"
    figure.colorbar(colors, ax=panels, label=label, shrink=0.8, aspect=30)
    return figure


def matrix_keys(members: Sequence[Member]) -> list[tuple[str, int]]:
    """Return (task, length) of all evaluations under several variants."""
    variants: dict[tuple[str, int], set[str]] = {}
    for measured in (measured for member in members for measured in member.measurements):
        if measured.compared:
            variants.setdefault((measured.task, measured.length), set()).add(measured.variant)
    several = [key for key, names in variants.items() if len(names) > 1]
    order = sort_tasks(task for task, _ in several)
    return sorted(several, key=lambda key: (order.index(key[0]), key[1]))


def cells(members: Sequence[Member], task: str, length: int) -> dict[tuple[int, str], Measurement]:
    """Return measurements by (member index, variant of evaluation)."""
    return {
        (member.index, measured.variant): measured
        for member in members
        for measured in member.measurements
        if (measured.task, measured.length) == (task, length)
    }


def cell_text(measured: Measurement) -> str:
    """Return the number in a cell of the matrix and, on the next line, its interval if any."""
    if measured.kind != "retrieval":
        return f"{measured.value:.3f}"
    if not measured.estimate.has_l50:
        return measured.estimate.verdict.lower().replace("_", "\n")
    text = str(measured.estimate).replace(" between", "\nbetween")
    return text.replace(" [", "\n[").replace(", dips", ",\ndips")


def draw_matrix(members: Sequence[Member], task: str, length: int) -> Figure:
    """Draw variants of training (rows) x variants of evaluation (columns); brighter is better."""
    results = cells(members, task, length)
    shown = [member for member in members if any(index == member.index for index, _ in results)]
    variants = sorted(dict.fromkeys(name for _, name in results), key=lambda name: name != TRAINED)
    is_wide = len(variants) < 5
    names = [folded(variant, 22 if is_wide else 12) for variant in variants]
    lines = max(name.count("\n") for name in names)
    figure = new_figure(2.8 + 1.5 * len(variants), 1.1 + 0.14 * lines + 0.52 * len(shown))
    ax = figure.subplots()
    fills = dict(zip(results, MAP(_brightness(list(results.values()))), strict=True))
    for (index, variant), fill in fills.items():
        at = variants.index(variant), shown.index(members[index])
        _draw_number(ax, at, members[index], results[index, variant], fill)
    ax.set_xlim(0, len(variants))
    ax.set_ylim(len(shown), 0)
    ax.set_xticks(np.arange(len(names)) + 0.5, names, fontsize=8.5 if is_wide else 7.5)
    ax.set_yticks(np.arange(len(shown)) + 0.5, [member.label for member in shown], fontsize=9)
    ax.xaxis.tick_top()
    ax.tick_params(length=0)
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    ax.set_facecolor(EMPTY)
    figure.supylabel("trained with")
    figure.supxlabel(f"evaluated with ({task} at {length:,})", color=FAINT)
    return figure


def _draw_number(
    ax: Axes, at: tuple[int, int], member: Member, measured: Measurement, fill: np.ndarray
) -> None:
    """Draw a cell of the matrix: its number, and small, its interval."""
    x, y = at
    patch = _draw_cell(ax, x, y, 1, 1, fill)
    dark = np.dot(fill[:3], (0.2126, 0.7152, 0.0722)) < 0.5
    value, _, interval = cell_text(measured).partition("\n")
    style: Any = {"color": ON_DARK if dark else ON_BRIGHT, "ha": "center", "va": "center"}
    middle = y + (0.36 if interval else 0.5)
    texts = [ax.text(x + 0.5, middle, value, fontsize=10, **style)]
    if interval:
        texts.append(ax.text(x + 0.5, y + 0.72, interval, fontsize=7.5, **style))
    text = str(measured.estimate) if measured.kind == "retrieval" else f"{measured.value:.4f}"
    caption = f"trained {member.label}, evaluated {measured.variant}: {text}"
    tag([patch, *texts], member, caption)


def describe_matrix(members: Sequence[Member], task: str, length: int) -> str:
    """Return the cells of the matrix as text for screen readers."""
    return "; ".join(
        f"{members[index].label} with {variant} {' '.join(cell_text(measured).split())}"
        for (index, variant), measured in cells(members, task, length).items()
    )


def _brightness(results: Sequence[Measurement]) -> np.ndarray:
    """Return values in [0, 1], greater is better: log L50, negated nats, or shares."""
    if results[0].kind == "retrieval":
        l50 = np.array([measured.estimate.mark for measured in results])
        low = np.nanmin([*l50, np.inf])
        high = np.nanmax([*l50, 1.01 * low])
        return np.nan_to_num(LogNorm(low, high)(l50)) if low < np.inf else np.zeros(len(results))
    values = np.array([measured.value for measured in results])
    if results[0].kind == "likelihood":
        return 1 - Normalize(values.min(), values.max() or 1)(values)
    return values
