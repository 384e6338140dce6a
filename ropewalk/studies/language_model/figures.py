"""Tables and figures of the study."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from ropewalk.reporting.page import NONE, Item, Table, make_figure
from ropewalk.studies.card import Card
from ropewalk.studies.language_model import law, measures
from ropewalk.studies.language_model.law import Run
from ropewalk.studies.language_model.measures import REFERENCE, gains, over_seeds, runs_of
from ropewalk.studies.rows import Row
from ropewalk.utils.figures import (
    FAINT,
    INK,
    Look,
    add_legend,
    error_bar,
    handle,
    label_values,
    make_looks,
    mark_handle,
    new_figure,
    token_axis,
)
from ropewalk.utils.figures import REFERENCE as REFERENCE_LINE
from ropewalk.utils.limits import read_json

_MARKERS = "o", "s", "^", "D", "v"


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
        yield make_figure("Copy gain by lag", "copy_gains", draw_copy_gains, rows)
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
    figure = new_figure(7.2, 3.8)
    ax = figure.subplots()
    by_seed = law.reaches(runs)
    for i, reaches in enumerate(by_seed.values()):
        for base, reach in zip(law.GROWING, reaches, strict=True):
            value, low, high = over_seeds([reach])[:3]
            x = base * 1.05 ** (i - 1.5)
            ends = low, min(high, measures.LENGTH)
            error_bar(ax, x, value, ends, color=INK, marker=_MARKERS[i], ms=5, lw=1)
    handles = [
        mark_handle(f"seed {seed}", marker) for seed, marker in zip(by_seed, _MARKERS, strict=False)
    ]
    octaves = np.log2([[reach.values[0] for reach in reaches] for reaches in by_seed.values()])
    for (name, length), color in zip(law.THEORIES.items(), _COLORS, strict=True):
        lengths = np.array([length(base) for base in law.GROWING])
        factor = 2 ** np.mean(octaves - np.log2(lengths))
        ax.plot(law.GROWING, factor * lengths, color=color, lw=1.5, zorder=1)
        handles.append(handle(f"{factor:.2g} x {name}", color=color, lw=1.5))
    ax.set(
        xscale="log", yscale="log", xlabel="base (log scale)", ylabel="reach (tokens, log scale)"
    )
    token_axis(ax.yaxis)
    label_values(ax.xaxis, {base: f"{base:,}" for base in law.GROWING})
    add_legend(figure, handles)
    return figure


_COLORS = "#0072b2", "#56b4e9", "#d55e00", "#999999"


def draw_costs(runs: Sequence[Run]) -> Figure:
    """Draw the cost of each run against its level of copying, and the line through all."""
    figure = new_figure(7.2, 3.8)
    ax = figure.subplots()
    fit, looks, handles = law.fit_cost(runs), _looks(law.BASES), []
    levels = np.array([0, 1])
    ax.plot(levels, fit.intercept + fit.slope * levels, color=FAINT, lw=1.5)
    for base, marker in zip(law.BASES, _MARKERS, strict=True):
        style = {"color": looks[base].color, "marker": marker}
        for run in runs:
            if run.base == base:
                value, low, high = over_seeds([run.cost])[:3]
                error_bar(ax, run.level.values[0], value, (low, high), ms=5, lw=1, **style)
        handles.append(mark_handle(f"base {base:,}", **style))
    handles.append(handle(f"{fit.intercept:.3f} - {-fit.slope:.3f} x level", color=FAINT, lw=1.5))
    ax.set(xlabel="level: copy gain at lags 8-16, share of base 10,000's", xlim=(0, 1.05))
    ax.set_ylabel("loss minus that of base 10,000 (nats)")
    add_legend(figure, handles)
    return figure


def draw_copy_gains(rows: Sequence[Row]) -> Figure:
    """Draw the copy gain of each base by lag after 40M tokens, and its share of base 1e4's."""
    figure = new_figure(7.2, 3.8)
    axes = figure.subplots(1, 2)
    looks, bases = {}, (*law.BASES[1:], 10_000)
    for base, look in _looks(bases).items():
        panels: tuple[list, list] = [], []
        for card in law.CARDS[:2]:
            references = runs_of(rows, card, REFERENCE)
            for seed, row in sorted(runs_of(rows, card, f"base={base}").items()):
                run, reference = (gains(x, measures.SHORTEST_LAG) for x in (row, references[seed]))
                if run is not None and reference is not None:
                    center_B = run.center_B
                    panels[0].append(run.total_DB.sum(0) / run.count_DB.sum(0))
                    panels[1].append(measures.shares(run, reference, measures.NEARBY))
        if not panels[0]:
            continue
        looks[base] = look
        for ax, seeds in zip(axes, panels, strict=True):
            ax.plot(center_B, np.mean(seeds, 0), **look.line, lw=2)
            ax.plot(center_B, np.transpose(seeds), color=look.color, lw=0.5)
    for ax in axes:
        token_axis(ax.xaxis)
        ax.set(xlabel="lag (tokens, log scale)", ylim=(0, None))
    axes[0].set_ylabel("copy gain (nats per token)")
    axes[1].set_ylabel("share of base 10,000's (lags 8-16: 1)")
    axes[1].axhline(0.5, **REFERENCE_LINE)
    add_legend(figure, [handle(f"base {base:,}", **x.line, lw=2) for base, x in looks.items()])
    return figure


def _looks(bases: Sequence[int]) -> dict[int, Look]:
    looks = make_looks(list(map(float, bases)), [1] * len(bases), spread=True)
    return dict(zip(bases, looks, strict=True))
