"""Tables and figures of the study."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ropewalk.reporting.page import NONE, Item, Table, make_figure
from ropewalk.studies.card import Card
from ropewalk.studies.language_model import law, measures
from ropewalk.studies.language_model.law import Run
from ropewalk.studies.language_model.measures import REFERENCE, gains, over_seeds, runs_of
from ropewalk.studies.rows import Row
from ropewalk.utils.figures import (
    DASHED,
    DOTTED,
    FAINT,
    INK,
    End,
    add_legend,
    error_bar,
    grid,
    handle,
    label_ends,
    label_values,
    mark_handle,
    new_figure,
    set_message,
    stroke_of,
    token_axis,
)
from ropewalk.utils.figures import REFERENCE as REFERENCE_LINE
from ropewalk.utils.limits import read_json

_MARKERS = "o", "s", "^", "D", "v"
LEAST_ANSWERS = 50  # of a point of a curve, over all documents


def sections(cards: Sequence[Card], rows: Sequence[Row]) -> Iterator[Item]:
    """Yield the growth of the reach, the costs, the heads, and a table of each card with rows."""
    if law.reaches(runs := law.find_runs(rows)):
        fit = law.fit_cost(runs)
        lines = {
            "Reach after 40M tokens": law.growth_lines(runs),
            "Theories of the reach": law.theory_lines(runs),
            "Runs after 40M tokens": law.run_lines(runs),
            "Cost against level": [
                {"runs": f"{len(runs)}"} | {k: f"{v:.3f}" for k, v in fit._asdict().items()}
            ],
            "Large bases after 10M tokens": law.control_lines(rows),
        }
        for title, cells in lines.items():
            table = [(None, line) for line in cells]
            yield title, "", Table.from_cells(table, has_all_columns=True)
        yield make_figure("Reach against base", "reach_of_bases", draw_reaches, runs)
        yield make_figure("Cost against level of copying", "cost_of_levels", draw_costs, runs)
        yield make_figure("Copy gain by lag", "copy_gains", draw_copy_gains, rows, runs)
        heads = read_json(Path(__file__).with_name("heads.json"))
        yield "Heads that copy", "", Table.from_cells([(None, line) for line in heads])
    for card in cards:
        if (table := make_table(card, rows)).lines:
            yield f"Against the reference: {card.name}", "", table


def make_table(card: Card, rows: Sequence[Row]) -> Table:
    """Make the table of each member's loss minus, and copy gain divided by, its reference's."""
    T = card.shared().data.context_length
    lines = []
    for member, config in card.configs().items():
        reference, nearby = f"reference-{config.model.head_dim}", 48
        if reference not in card.members:
            reference, nearby = REFERENCE, measures.NEARBY
        cost = partial(measures.cost, member, reference=reference)
        ratio = partial(measures.copy_ratio, member, length=T, reference=reference)
        columns = {
            "loss": cost(length=T),
            "at positions 1-15": cost(length=T, last=16),
            f"{T // 2:,}-{T:,}": cost(length=T, first=T // 2),
            f"{T + 1:,}-{2 * T:,}": cost(length=2 * T, first=T + 1),
            f"{T + 1:,}-{4 * T:,}": cost(length=4 * T, first=T + 1),
            "level": ratio(measures.SHORTEST_LAG, nearby),
            "copy gain, lags > 32": ratio(32),
            f"> {T // 2:,}": ratio(T // 2),
            "half lag": measures.half_lag(member, length=T, reference=reference),
            "reach": measures.reach(member, length=T, reference=reference, nearby=nearby),
        }
        values = {name: measure(card, rows) for name, measure in columns.items()}
        if member != reference and any(values.values()):
            texts = {name: NONE if value is None else str(value) for name, value in values.items()}
            lines.append((None, {"member": member} | texts))
    caption = (
        "Loss of a member minus that of its reference (base 10,000, or 1e6 with heads of the same "
        f"size), nats per token, in all positions of {T:,} tokens and in some, beyond them in "
        "longer texts; copy gain divided by the reference's; half lag and reach, tokens."
    )
    return Table.from_cells(lines, caption=caption, wraps=True, has_all_columns=True)


def draw_reaches(runs: Sequence[Run]) -> Figure:
    """Draw the reach of each base and seed, and what theories with one factor say."""
    figure = new_figure(8, 4.2)
    ax = figure.subplots()
    by_seed, ends = law.reaches(runs), []
    octaves = np.log2([[reach.values[0] for reach in reaches] for reaches in by_seed.values()])
    for (name, length), style in zip(law.THEORIES.items(), _THEORIES, strict=True):
        lengths = np.array([length(base) for base in law.GROWING])
        factor = 2 ** np.mean(octaves - np.log2(lengths))
        ax.plot(law.GROWING, factor * lengths, lw=1.5, zorder=1, **style)
        name = name.replace("B_m < 0", "theory length (B_m < 0)")
        name = f"{factor:.2g} × {name}"
        ends.append(End(law.GROWING[-1], factor * lengths[-1], name, style["color"]))
    for i, reaches in enumerate(by_seed.values()):
        for base, reach in zip(law.GROWING, reaches, strict=True):
            value, low, high = over_seeds([reach])[:3]
            x = base * 1.05 ** (i - 1.5)
            limits, color = (low, min(high, measures.LENGTH)), stroke_of(base).color
            error_bar(ax, x, value, limits, color=color, marker=_MARKERS[i], ms=6, lw=1.4)
    ax.set(xlabel="base (log scale)", ylabel="reach (tokens, log scale)", xscale="log")
    token_axis(ax.yaxis)
    label_values(ax.xaxis, {base: f"{base:,}" for base in law.GROWING})
    growth = 2 ** np.mean(octaves[:, -1] - octaves[:, 0])
    first, last = law.GROWING[0], law.GROWING[-1]
    message = (
        f"Models of base {last:,} copy from {growth:.1f} times as far as those of base {first:,}"
    )
    set_message(figure, message)
    label_ends(ax, ends)
    seeds = zip(by_seed, _MARKERS, strict=False)
    handles = [mark_handle(f"seed {seed}", marker, color=FAINT) for seed, marker in seeds]
    add_legend(figure, handles, below=True)
    return figure


# The theory length is black, rivals are gray.
_THEORIES: tuple[dict[str, Any], ...] = (
    {"color": FAINT, "ls": DASHED},
    {"color": FAINT, "ls": DOTTED},
    {"color": INK},
    {"color": FAINT},
)


def draw_costs(runs: Sequence[Run]) -> Figure:
    """Draw the cost of each run against its level of copying, and the line through all."""
    figure = new_figure(8, 4.2)
    ax = figure.subplots()
    fit, handles = law.fit_cost(runs), []
    levels = np.array([0, 1])
    ax.plot(levels, fit.intercept + fit.slope * levels, color=FAINT, lw=1.5)
    for base, marker in zip(law.BASES, _MARKERS, strict=True):
        style = {"color": stroke_of(base).color, "marker": marker}
        for run in runs:
            if run.base == base:
                value, low, high = over_seeds([run.cost])[:3]
                error_bar(ax, run.level.values[0], value, (low, high), ms=6, lw=1.4, **style)
        handles.append(mark_handle(f"base {base:,}", **style))
    handles.append(handle(f"{fit.intercept:.3f} - {-fit.slope:.3f} × level", color=FAINT, lw=1.5))
    ax.set(xlabel="level: copy gain at lags 8-16, share of base 10,000's", xlim=(0, 1.05))
    ax.set_ylabel("loss minus that of base 10,000 (nats)")
    less = "less" if fit.slope < 0 else "more"
    set_message(figure, f"A run that copies more costs {less}, whatever its base")
    add_legend(figure, handles, below=True)
    return figure


def draw_copy_gains(rows: Sequence[Row], runs: Sequence[Run] = ()) -> Figure:
    """Draw the copy gain of each base by lag after 40M tokens, and its share of base 1e4's.

    Curves are means over seeds; half octaves of few answers are left out. The title has the reaches
    of `runs`.
    """
    figure, axes = grid(2, columns=2, height=3.8)
    titles = "copy gain (nats per token)", "share of base 10,000's (1 at lags 8-16)"
    ends: tuple[list[End], list[End]] = [], []
    for base in (*law.BASES[1:], 10_000):
        panels: tuple[list, list] = [], []
        for card in law.CARDS[:2]:
            references = runs_of(rows, card, REFERENCE)
            for seed, row in sorted(runs_of(rows, card, f"base={base}").items()):
                run, reference = (gains(x, measures.SHORTEST_LAG) for x in (row, references[seed]))
                if run is not None and reference is not None:
                    count_B = run.count_DB.sum(0)
                    is_drawn_B, center_B = count_B >= LEAST_ANSWERS, run.center_B
                    panels[0].append(run.total_DB.sum(0) / count_B)
                    panels[1].append(measures.shares(run, reference, measures.NEARBY))
        stroke = stroke_of(base)
        for (ax,), seeds, of_panel in zip(axes, panels, ends, strict=True):
            if seeds:
                lag_B, mean_B = center_B[is_drawn_B], np.mean(seeds, 0)[is_drawn_B]
                ax.plot(lag_B, mean_B, marker=".", lw=2, **stroke.line)
                of_panel.append(End(lag_B[-1], mean_B[-1], f"base {base:,}", stroke.color))
    for (ax,), title in zip(axes, titles, strict=True):
        token_axis(ax.xaxis)
        ax.set(xlabel="lag (tokens, log scale)", ylim=(0, None), title=title)
    axes[1, 0].axhline(0.5, **REFERENCE_LINE)
    reach = {b: [x.reach.values[0] for x in runs if x.base == b] for b in law.GROWING}
    halves = [np.exp(np.mean(np.log(values))) for values in reach.values() if values]
    message = "How far back models copy"
    if len(halves) > 1 and halves == sorted(halves):
        message = (
            f"Copying ends earlier with a smaller base: it halves at {halves[0]:.0f} tokens with "
            f"base {law.GROWING[0]:,}, at {halves[-1]:.0f} with base {law.GROWING[-1]:,}"
        )
    set_message(figure, message)
    for (ax,), of_panel in zip(axes, ends, strict=True):
        label_ends(ax, of_panel)
    return figure
