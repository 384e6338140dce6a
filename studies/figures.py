"""Figures of a study's report."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from evals.estimate.trials import Trials
from reporting.style import FAINT, INK, folded, grid, handle, token_axis
from studies.recall import MINIMAL_HEAD, Comparison, errors
from studies.results import CardResults, Key
from studies.verdicts import judge_bound

_COLORS = "#2563a8", "#c2570c", "#4d8c2b", "#8a3ea8"  # of measurements, in a card's order
_BLIND, _OLDER = "#c2570c", "#2563a8"  # forecast before any row, or after
_MIN_TRIALS = 30  # bins are joined until each has this many in every seed
_DASHES, _DOTS = (0, (4, 3)), (0, (1, 1.5))


def draw_forecasts(comparisons: Sequence[Comparison]) -> Figure:
    """Draw measured against forecast L50 and mean accuracy: a column per theory, a mark per member.

    L50 is that of members with one head; an arrow points to where an L50 is that is beyond all
    distances. Rivals of the minimal head have the constant that fits these members best.
    """
    last = {(item.card.name, item.member): item for item in comparisons if item.is_learned}
    items = [item for item in last.values() if not item.repeats]
    single = [item for item in items if item.has_one_head]
    names = list(items[0].lengths) if items else []
    figure = Figure(figsize=(10, 5.6), layout="constrained")
    rows = figure.subplots(2, max(1, len(names)), squeeze=False, sharey="row")
    for name, above, below in zip(names, *rows, strict=False):
        is_rival = name != MINIMAL_HEAD
        of_l50, of_mean = errors(single, name), errors(items, name, of_accuracy=True)
        constant = of_l50.constant if is_rival else 1.0
        for item in single:
            _draw_l50_point(above, item, constant * item.lengths[name])
        for item in items:
            error = item.record["mean_accuracy"] - item.measured.mean_accuracy
            if is_rival:
                error = item.accuracy_error(of_mean.constant * item.lengths[name])
            y = item.measured.mean_accuracy
            _draw_mark(below, item, y + error, y, "o" if item.has_one_head else "s")
        rms = of_l50.rms_fitted if is_rival else of_l50.rms
        above.set_title(
            f"{name}{f' x {constant:.2f}' * is_rival}\nrms {rms:.2f} octaves", fontsize=9
        )
        rms = of_mean.rms_fitted if is_rival else of_mean.rms
        times = f"x {of_mean.constant:.2f}: " if is_rival else ""
        below.set_title(f"{times}rms {rms:.3f}", fontsize=9)
        above.plot([1, 512], [1, 512], color=FAINT, lw=1, zorder=1)
        below.plot([0, 1], [0, 1], color=FAINT, lw=1, zorder=1)
        for axis in (above.xaxis, above.yaxis):
            token_axis(axis, num_ticks=6)
        above.set(xlim=(1.5, 400), ylim=(1.5, 400))
    figure.supxlabel("forecast", fontsize=10)
    rows[0, 0].set_ylabel("measured L50 (tokens)")
    rows[1, 0].set_ylabel("measured mean accuracy")
    figure.legend(
        handles=[
            handle("forecast before\nany row", marker="o", color=_BLIND, ls="none"),
            handle("rows before\nforecast", marker="o", color=_OLDER, ls="none"),
            handle("several heads", marker="s", color=INK, mfc="white", ls="none"),
            handle("beyond all\ndistances", marker="^", color=INK, ls="none"),
        ],
        loc="outside right center",
    )
    return figure


def _draw_l50_point(ax: Axes, item: Comparison, length: float) -> None:
    """Draw L50, with an arrow up or right where it is beyond; nothing if both are."""
    longest = item.measured.longest
    is_beyond = item.measured.verdict.startswith(">")
    if not (is_beyond and length >= longest):
        marker = "^" if is_beyond else ">" if length >= longest else "o"
        _draw_mark(ax, item, min(length, longest), item.measured.l50, marker)


def _draw_mark(ax: Axes, item: Comparison, x: float, y: float, marker: str) -> None:
    color = _BLIND if item.card.is_blind else _OLDER
    face = "white" if item.measured.num_seeds < 3 else color
    (point,) = ax.plot(x, y, marker, ms=5, color=color, markerfacecolor=face, alpha=0.8)
    # The page shows this text at the point (`reporting.style.tag`).
    point.set_gid(f"{item.card.name} title:{item.card.name} {item.member}: {item.error_text}")


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
        ax.set_title(f"{folded(member)}\nD_H: {judge_bound(card, member, names[0])}", fontsize=9)
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
            handle("D_H", color=INK, lw=1.2, ls=_DASHES),
            *([handle("minimal head", color=INK, lw=1.2, ls=_DOTS)] if recalls else ()),
            handle("measured L50", marker="D", mfc="white", mec=_COLORS[0], ls="none"),
        ],
        loc="outside right center",
    )
    return figure


def _draw_l50(ax: Axes, card: CardResults, key: Key) -> None:
    """Draw D_H's bound and measured L50, if they are within the distances measured."""
    estimate, forecast = card.estimates[key], card.forecasts.get(key[:2], math.nan)
    if forecast < estimate.longest:
        ax.axvline(forecast, color=INK, lw=1.2, ls=_DASHES, zorder=2)
    if all(seed.learned and not seed.beyond for seed in estimate.seeds):
        half = (estimate.ceiling + estimate.chance) / 2
        ax.plot(estimate.l50, half, "D", mfc="white", mec=_COLORS[0], zorder=5)


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
