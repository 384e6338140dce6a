"""Figures of the study: loss by position and copy gain by lag, for every base."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ropewalk.model.rotary.rope import Rope
from ropewalk.reporting.page import NONE, Item, Table, make_figure
from ropewalk.studies.card import Card, Value
from ropewalk.studies.language_model import measures
from ropewalk.studies.language_model.measures import LENGTH, REFERENCE, Sums, gains, losses, runs_of
from ropewalk.studies.rows import Row
from ropewalk.theory.decay import first_violation
from ropewalk.utils.figures import INK, Look, add_legend, handle, make_looks, new_figure, token_axis
from ropewalk.utils.figures import REFERENCE as REFERENCE_LINE

BASES: tuple[int, ...] = 10, 100, 1_000, 10_000
_CARD = "language_model"
_LAG_BASES: tuple[int, ...] = 30, 100, 300, 1_000, 10_000
_LAG_CARD = "language_model_lag_seeds"
_HEAD_DIM = 64
_FIRST_POSITION = 4  # before it, half octaves have one token of each document


def sections(cards: Sequence[Card], rows: Sequence[Row]) -> Iterator[Item]:
    """Yield a table of each card that has rows, and the figures of the card of bases."""
    if runs_of(rows, _CARD, REFERENCE):
        for card in cards:
            if (table := make_table(card, rows)).lines:
                yield f"Against base 10,000: {card.name}", "", table
        yield make_figure("Loss by position", "losses", draw_losses, rows)
        yield make_figure("Cost by position", "costs", draw_costs, rows)
        yield make_figure("Copy gain by lag", "copy_gains", draw_copy_gains, rows)


def make_table(card: Card, rows: Sequence[Row]) -> Table:
    """Make the table of each member's loss minus, and copy gain divided by, that of base 1e4."""
    T = card.shared().data.context_length
    columns = {
        "loss": partial(measures.cost, length=T),
        "at positions 1-15": partial(measures.cost, length=T, last=16),
        f"{T // 2:,}-{T:,}": partial(measures.cost, length=T, first=T // 2),
        f"{T + 1:,}-{2 * T:,}": partial(measures.cost, length=2 * T, first=T + 1),
        f"{T + 1:,}-{4 * T:,}": partial(measures.cost, length=4 * T, first=T + 1),
        "copy gain, lags > 32": partial(measures.copy_ratio, length=T, first=32),
        f"> {T // 2:,}": partial(measures.copy_ratio, length=T, first=T // 2),
        "half lag": partial(measures.half_lag, length=T),
        "reach": partial(measures.reach, length=T),
    }
    lines = []
    for member in card.members:
        values = {name: make(member)(card, rows) for name, make in columns.items()}
        if member != REFERENCE and any(values.values()):
            texts = {name: NONE if value is None else str(value) for name, value in values.items()}
            lines.append((None, {"member": member} | texts))
    caption = (
        f"Loss of a member minus that of base 10,000, nats per token, in all positions of {T:,} "
        "tokens and in some, beyond them in longer texts; copy gain divided by that of base "
        "10,000; half lag and reach, tokens."
    )
    return Table.from_cells(lines, caption=caption, wraps=True, has_all_columns=True)


def draw_losses(rows: Sequence[Row]) -> Figure:
    """Draw the loss of each base by position, up to four times the trained length."""
    figure, ax = _new_figure()
    read = partial(losses, length=4 * LENGTH, first=16, last=4 * LENGTH)
    looks = _draw_bases(ax, rows, read, lambda run, _: measures.measure_mean(run), BASES)
    add_legend(figure, _handles(looks))
    ax.axvline(LENGTH, color="black", lw=1)
    ax.text(LENGTH / 1.05, ax.get_ylim()[1], "trained length", ha="right", va="top")
    ax.set(xlabel="position (tokens, log scale)", ylabel="loss (nats per token)")
    return figure


def draw_costs(rows: Sequence[Row]) -> Figure:
    """Draw the cost of each base by position."""
    figure, ax = _new_figure()
    ax.axhline(0, **REFERENCE_LINE)
    # The last half octave of positions has one: 512.
    read = partial(losses, length=LENGTH, first=_FIRST_POSITION, last=LENGTH)
    looks = _draw_bases(ax, rows, read, measures.measure_difference, BASES[:-1], is_paired=True)
    add_legend(figure, _handles(looks))
    ax.set(xlabel="position (tokens, log scale)", ylabel="loss minus that of base 10,000 (nats)")
    return figure


def draw_copy_gains(rows: Sequence[Row]) -> Figure:
    """Draw the copy gain of each base by lag after 40M tokens, and its share of base 1e4's."""
    figure = new_figure(7.2, 3.8)
    axes = figure.subplots(1, 2)
    looks = {}
    for base, look in _looks(_LAG_BASES).items():
        by_seed = [runs_of(rows, _LAG_CARD, member) for member in (f"base={base}", REFERENCE)]
        panels: tuple[list, list] = [], []
        for seed in sorted(set.intersection(*map(set, by_seed))):
            run, reference = (gains(runs[seed], measures.SHORTEST_LAG) for runs in by_seed)
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
        if first := first_violation(Rope(base=base).inv_freq(_HEAD_DIM), LENGTH):
            axes[1].axvline(first, color=look.color, ls=":", lw=1.5)
    for ax in axes:
        token_axis(ax.xaxis)
        ax.set(xlabel="lag (tokens, log scale)", ylim=(0, None))
    axes[0].set_ylabel("copy gain (nats per token)")
    axes[1].set_ylabel("share of base 10,000's (lags 8-16: 1)")
    axes[1].axhline(0.5, **REFERENCE_LINE)
    add_legend(figure, [*_handles(looks), handle("Bₘ < 0", color=INK, ls=":", lw=1.5)])
    return figure


def _new_figure() -> tuple[Figure, Axes]:
    figure = new_figure(7.2, 3.8)
    ax = figure.subplots()
    token_axis(ax.xaxis)
    return figure, ax


def _draw_bases(
    ax: Axes,
    rows: Sequence[Row],
    read: Callable[[Row], Sums | None],
    measure: Callable[[Sums, Sums], Value],
    bases: Sequence[int],
    is_paired: bool = False,
) -> dict[int, Look]:
    """Draw each base's line and interval over the half octaves that are read; return the looks.

    With `is_paired`, a run is measured with the run of base 1e4 on the same rows.
    """
    all_looks, looks = _looks(BASES), {}
    for base in bases:
        runs = runs_of(rows, _CARD, f"base={base}")
        references = runs_of(rows, _CARD, REFERENCE) if is_paired else runs
        curves = []
        for seed in sorted(runs.keys() & references.keys()):
            run, reference = read(runs[seed]), read(references[seed])
            if run is not None and reference is not None:
                curves.append(dict(measures.by_bin(measure, run, reference)))
        if not curves:
            continue
        look = looks[base] = all_looks[base]
        centers = list(curves[0])
        values = [measures.over_seeds([curve[center] for curve in curves]) for center in centers]
        ax.plot(centers, [value.value for value in values], **look.line, lw=2)
        low, high = ([value.low for value in values], [value.high for value in values])
        ax.fill_between(centers, low, high, color=look.color, alpha=0.15, lw=0)
    return looks


def _looks(bases: Sequence[int]) -> dict[int, Look]:
    looks = make_looks(list(map(float, bases)), [1] * len(bases), spread=True)
    return dict(zip(bases, looks, strict=True))


def _handles(looks: dict[int, Look]) -> list[Line2D]:
    return [handle(f"base {base:,}", **look.line, lw=2) for base, look in looks.items()]
