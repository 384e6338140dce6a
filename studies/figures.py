"""The figures of a study's report."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from evals.estimate.trials import Trials
from reporting.looks import FAINT, INK
from reporting.style import folded, grid, handle, token_axis
from studies.marks import FAILED, HALF_OCTAVE, HELD, CardResults, Key, log_l50

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
        for member in card.last:
            estimate, mark = card.first(member), card.forecast_mark(member)
            if estimate is None or mark.word not in _OF_MARK:
                continue
            x = min(card.forecast(member), estimate.longest)
            y = 2 ** log_l50(estimate)
            beyond = all(seed.beyond for seed in estimate.seeds)
            color = _OF_MARK[mark.word]
            style = dict(color=color, ms=7 if beyond else 5, marker="^" if beyond else "o")
            ax.plot(x, y, mfc=color if mark.num_seeds > 1 else "white", **style)
            note = dict(textcoords="offset points", fontsize=7, color=FAINT)
            ax.annotate(f"{card.card.name} {member}", (x, y), (6, -3), **note)
            longest = max(longest, estimate.longest)
    ends = [1.0, 2 * longest]
    for shift, dashes in ((0.0, "-"), (HALF_OCTAVE, _DASHES), (-HALF_OCTAVE, _DASHES)):
        y = [end * 2**shift for end in ends]
        ax.plot(ends, y, color=FAINT, lw=1, ls=dashes, zorder=1)
    for axis in (ax.xaxis, ax.yaxis):
        axis.axes.set(xscale="log", yscale="log")
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
    members = list(card.last)
    figure, panels = grid(len(members), height=2.6, sharey=True)
    found: list[Key] = list(card.trials)
    measurements = [measurement.name for measurement in card.card.measurements]
    for ax, member in zip(panels, members, strict=True):
        ax.set_xscale("log", base=2)
        for key in (key for key in found if key[0] == member):
            _curve(ax, card.trials[key], _COLORS[measurements.index(key[1]) % len(_COLORS)])
        ax.set_title(f"{folded(member)}\n{card.forecast_mark(member)}", fontsize=9)
        estimate = card.first(member)
        if estimate is not None:
            forecast = card.forecasts.get(member, math.nan)
            if forecast <= estimate.longest:
                ax.axvline(forecast, color=INK, lw=1.2, ls=_DASHES, zorder=2)
            if not any(seed.beyond for seed in estimate.seeds):
                half = (estimate.ceiling + estimate.chance) / 2
                ax.plot(2 ** log_l50(estimate), half, "D", mfc="white", mec=_COLORS[0], zorder=5)
        ax.set_ylim(-0.03, 1.03)
        token_axis(ax.xaxis, num_ticks=8)
    figure.supxlabel("distance to the answer (tokens, log scale)", fontsize=10)
    figure.supylabel("accuracy (exact match)", fontsize=10)
    lines = [
        handle(name, color=_COLORS[index % len(_COLORS)], lw=2.2)
        for index, name in enumerate(measurements)
    ]
    figure.legend(
        handles=[
            *(lines if len(lines) > 1 else ()),
            handle("forecast of L50", color=INK, lw=1.2, ls=_DASHES),
            handle("L50, mean of seeds", marker="D", mfc="white", mec=_COLORS[0], ls="none"),
        ],
        loc="outside right center",
    )
    return figure


def _curve(ax: Axes, trials: Trials, color: str) -> None:
    joined = trials.of_at_least(_FEWEST_TRIALS)
    x = 2**joined.x
    asked_SF, right_SF = joined.asked.sum(1), joined.right.sum(1)
    if len(asked_SF) > 1:
        for asked_F, right_F in zip(asked_SF, right_SF, strict=True):
            ax.plot(x, right_F / asked_F, color=color, lw=0.7, alpha=0.6)
    ax.plot(x, right_SF.sum(0) / asked_SF.sum(0), color=color, lw=1.8)
