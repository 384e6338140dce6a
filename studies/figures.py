"""Figures of a study's report."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from evals.estimate.trials import Trials
from reporting.style import FAINT, INK, folded, grid, handle, token_axis
from studies.results import CardResults, Key
from studies.verdicts import FAILED, HALF_OCTAVE, HELD, Verdict, judge_forecast

_COLORS = "#2563a8", "#c2570c", "#4d8c2b", "#8a3ea8"  # of measurements, in a card's order
_VERDICT_COLORS = {HELD: "#2563a8", FAILED: "#c2570c"}
_MIN_TRIALS = 30  # bins are joined until each has this many in every seed
_DASHES, _DOTS = (0, (4, 3)), (0, (1, 1.5))


def draw_forecasts(cards: Sequence[CardResults]) -> Figure:
    """Draw measured against forecast L50, a point per member; a triangle: beyond all distances."""
    figure = Figure(figsize=(7.2, 5.6), layout="constrained")
    ax = figure.subplots()
    longest = 2.0
    for card in cards:
        for member, measurement in card.forecasts:
            key, verdict = (
                card.find_key(member, measurement),
                judge_forecast(card, member, measurement),
            )
            if key and verdict.label in _VERDICT_COLORS:
                _draw_point(ax, card, key, verdict)
                longest = max(longest, card.estimates[key].longest)
    ends = [1.0, 2 * longest]
    for shift, dashes in ((0.0, "-"), (HALF_OCTAVE, _DASHES), (-HALF_OCTAVE, _DASHES)):
        y = [end * 2**shift for end in ends]
        ax.plot(ends, y, color=FAINT, lw=1, ls=dashes, zorder=1)
    for axis in (ax.xaxis, ax.yaxis):
        token_axis(axis)
    ax.set(xlim=ends, ylim=ends)
    ax.set_xlabel("forecast L50 (tokens)")
    ax.set_ylabel("measured L50 (tokens)")
    return figure


def _draw_point(ax: Axes, card: CardResults, key: Key, verdict: Verdict) -> None:
    member, measurement, _ = key
    name, estimate = card.card.name, card.estimates[key]
    x, y = min(card.forecasts[member, measurement], estimate.longest), 2 ** card.log_l50(key)
    is_beyond = all(seed.beyond for seed in estimate.seeds)
    color = _VERDICT_COLORS[verdict.label]
    face = color if verdict.num_seeds > 1 else "white"
    marker, size = ("^", 7) if is_beyond else ("o", 5)
    (point,) = ax.plot(x, y, marker, ms=size, color=color, markerfacecolor=face)
    # The page shows this text at the point (`reporting.style.tag`).
    point.set_gid(f"{name} title:{name} {member}, {measurement}: {verdict}")
    ax.annotate(name, (x, y), (5, -3), textcoords="offset points", fontsize=7, color=FAINT)


def draw_curves(card: CardResults, recalls: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Draw accuracy by distance, a panel per member: thin lines for seeds, a thick one for all.

    Args:
      card: results.
      recalls: forecasts of the card by `studies.recall`, by member and tokens.
    """
    figure, panels = grid(len(card.last_rows), height=2.6, sharey=True)
    names = [measurement.name for measurement in card.card.measurements]
    for ax, member in zip(panels, card.last_rows, strict=True):
        ax.set_xscale("log", base=2)
        for (name, measurement, _), trials in card.trials.items():
            if name == member:
                _draw_curve(ax, trials, _COLORS[names.index(measurement) % len(_COLORS)])
        ax.set_title(f"{folded(member)}\n{judge_forecast(card, member, names[0])}", fontsize=9)
        if key := card.find_key(member, names[0]):
            _draw_l50(ax, card, key)
            tokens = max(row.tokens for row in card.last_rows[member].values())
            _draw_recall(ax, recalls.get(member, {}), tokens)
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
            handle("forecast L50", color=INK, lw=1.2, ls=_DASHES),
            *([handle("minimal head", color=INK, lw=1.2, ls=_DOTS)] if recalls else ()),
            handle("measured L50", marker="D", mfc="white", mec=_COLORS[0], ls="none"),
        ],
        loc="outside right center",
    )
    return figure


def _draw_l50(ax: Axes, card: CardResults, key: Key) -> None:
    """Draw forecast and measured L50, if they are within the distances measured."""
    estimate, forecast = card.estimates[key], card.forecasts.get(key[:2], math.nan)
    if forecast < estimate.longest:
        ax.axvline(forecast, color=INK, lw=1.2, ls=_DASHES, zorder=2)
    if all(seed.learned and not seed.beyond for seed in estimate.seeds):
        half = (estimate.ceiling + estimate.chance) / 2
        ax.plot(2 ** card.log_l50(key), half, "D", mfc="white", mec=_COLORS[0], zorder=5)


def _draw_recall(ax: Axes, records: Mapping[str, Any], tokens: int) -> None:
    """Draw the minimal head's accuracy at the budget nearest to `tokens`, if there is one."""
    if records:
        nearest = min(records, key=lambda text: abs(math.log(int(text) / tokens)))
        low, accuracy = zip(*records[nearest]["bins"], strict=True)
        # A bin of half an octave begins at `low`; it stands at its middle.
        x = [start * 2**0.25 if start > 2 else start for start in low]
        ax.plot(x, accuracy, color=INK, lw=1.2, ls=_DOTS, zorder=4)


def _draw_curve(ax: Axes, trials: Trials, color: str) -> None:
    joined = trials.with_min_trials(_MIN_TRIALS)
    x = 2**joined.x
    questions_SF, right_SF = joined.questions.sum(1), joined.right.sum(1)
    if len(questions_SF) > 1:
        for questions_F, right_F in zip(questions_SF, right_SF, strict=True):
            ax.plot(x, right_F / questions_F, color=color, lw=0.7, alpha=0.6)
    ax.plot(x, right_SF.sum(0) / questions_SF.sum(0), color=color, lw=1.8)
