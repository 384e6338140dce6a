"""The figures of a study's report."""

import itertools
import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from evals.estimate.trials import Trials
from reporting.looks import FAINT, INK
from reporting.style import folded, grid, handle, token_axis
from studies.marks import FAILED, HALF_OCTAVE, HELD, CardResults, Key

# Of measurements, in a card's order.
_COLORS = "#2563a8", "#c2570c", "#4d8c2b", "#8a3ea8"
_FEWEST_TRIALS = 30  # bins are joined until they have so many, each seed for itself
_DASHES = (0, (4, 3))
_OF_MARK = {HELD: "#2563a8", FAILED: "#c2570c"}


def forecasts(cards: Sequence[CardResults]) -> Figure:
    """L50 as measured against what was forecast, a point a member, an arrow if beyond."""
    figure = Figure(figsize=(7.2, 5.6), layout="constrained")
    ax = figure.subplots()
    longest = 2.0
    for card in cards:
        for (member, measurement), forecast in card.forecasts.items():
            key, mark = card.key(member, measurement), card.forecast_mark(member, measurement)
            if key is None or mark.word not in _OF_MARK:
                continue
            estimate = card.estimates[key]
            x, y = min(forecast, estimate.longest), 2 ** card.log_l50(key)
            beyond = all(seed.beyond for seed in estimate.seeds)
            color = _OF_MARK[mark.word]
            (point,) = ax.plot(x, y, "^" if beyond else "o", ms=7 if beyond else 5, color=color)
            point.set_markerfacecolor(color if mark.num_seeds > 1 else "white")
            # What a reader is shown who points at it (`reporting.style.tag`).
            point.set_gid(
                f"{card.card.name} title:{card.card.name} {member}, {measurement}: {mark}"
            )
            ax.annotate(
                card.card.name, (x, y), (5, -3), textcoords="offset points", fontsize=7, color=FAINT
            )
            longest = max(longest, estimate.longest)
    ends = [1.0, 2 * longest]
    for shift, dashes in ((0.0, "-"), (HALF_OCTAVE, _DASHES), (-HALF_OCTAVE, _DASHES)):
        y = [end * 2**shift for end in ends]
        ax.plot(ends, y, color=FAINT, lw=1, ls=dashes, zorder=1)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    for axis in (ax.xaxis, ax.yaxis):
        token_axis(axis)
    ax.set(xlim=ends, ylim=ends)
    ax.set_xlabel("L50 as forecast (tokens)")
    ax.set_ylabel("L50 as measured (tokens)")
    return figure


def curves(card: CardResults) -> Figure:
    """Accuracy by distance, a panel a member: seeds thin, their mean thick."""
    figure, panels = grid(len(card.last), height=2.6, sharey=True)
    names = [measurement.name for measurement in card.card.measurements]
    for ax, member in zip(panels, card.last, strict=True):
        ax.set_xscale("log", base=2)
        for (of, measurement, _), trials in card.trials.items():
            if of == member:
                _curve(ax, trials, _COLORS[names.index(measurement) % len(_COLORS)])
        ax.set_title(f"{folded(member)}\n{card.forecast_mark(member, names[0])}", fontsize=9)
        if key := card.key(member, names[0]):
            _edges(ax, card, key)
        ax.set_ylim(-0.03, 1.03)
        token_axis(ax.xaxis, num_ticks=8)
    figure.supxlabel("distance to the answer (tokens, log scale)", fontsize=10)
    figure.supylabel("accuracy (exact match)", fontsize=10)
    lines = [
        handle(name, color=color, lw=2.2)
        for name, color in zip(names, itertools.cycle(_COLORS), strict=False)
    ]
    figure.legend(
        handles=[
            *(lines if len(lines) > 1 else ()),
            handle("L50 as forecast", color=INK, lw=1.2, ls=_DASHES),
            handle("L50 as measured", marker="D", mfc="white", mec=_COLORS[0], ls="none"),
        ],
        loc="outside right center",
    )
    return figure


def _edges(ax: Axes, card: CardResults, key: Key) -> None:
    """L50 as forecast and as measured, where it is within the distances asked."""
    estimate, forecast = card.estimates[key], card.forecasts.get(key[:2], math.nan)
    if forecast < estimate.longest:
        ax.axvline(forecast, color=INK, lw=1.2, ls=_DASHES, zorder=2)
    if all(seed.learned and not seed.beyond for seed in estimate.seeds):
        half = (estimate.ceiling + estimate.chance) / 2
        ax.plot(2 ** card.log_l50(key), half, "D", mfc="white", mec=_COLORS[0], zorder=5)


def _curve(ax: Axes, trials: Trials, color: str) -> None:
    joined = trials.of_at_least(_FEWEST_TRIALS)
    x = 2**joined.x
    asked_SF, right_SF = joined.asked.sum(1), joined.right.sum(1)
    if len(asked_SF) > 1:
        for asked_F, right_F in zip(asked_SF, right_SF, strict=True):
            ax.plot(x, right_F / asked_F, color=color, lw=0.7, alpha=0.6)
    ax.plot(x, right_SF.sum(0) / asked_SF.sum(0), color=color, lw=1.8)
