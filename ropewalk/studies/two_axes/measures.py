"""Recall and order by base: measures of the claims, the table and the figure."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy import stats

from ropewalk.evals.estimate.bins import fine_bin_start
from ropewalk.model.rotary.rope import Rope
from ropewalk.reporting.page import NONE, Item, Table, make_figure
from ropewalk.studies.capability.measures import l50
from ropewalk.studies.card import Card, Measure, Value, as_measure
from ropewalk.studies.language_model.measures import (
    NOTHING,
    Resampled,
    Sums,
    compare,
    measure_mean,
)
from ropewalk.studies.rows import Row
from ropewalk.theory import decay
from ropewalk.theory.capability import bound_l50
from ropewalk.theory.positions import tell_apart
from ropewalk.utils import figures

FAR = 32  # tokens; nearer keys are ordered well at all bases
LONGEST = 124  # tokens; the longest distance of a question in 128 tokens
_LEARNED = 0.6  # accuracy of the best base; chance is .5
_NUM_OTHERS = 31  # keys that do not match in a document of recall


def _order(row: Row, first: int = FAR) -> Resampled | None:
    """Return the accuracy of `order` at distances from `first` on; None if not measured."""
    for answers in row.answers:
        if answers.task == "order" and answers.counts is not None:
            counts = answers.counts
            keep = fine_bin_start(counts.fine) >= first
            right, asked = counts.right[:, keep], counts.asked[:, keep]
            center = fine_bin_start(counts.fine[keep])
            return measure_mean(Sums(right.astype(float), asked.astype(float), center))
    return None


def order_accuracy(member: str, first: int = 1) -> Measure:
    """Return the measure of a member's accuracy of `order` at distances from `first` on."""
    return compare(lambda accuracy: accuracy, partial(_order, first=first), member)


def order_difference(member: str, *others: str) -> Measure:
    """Return the measure of a member's accuracy less that of the best of others, FAR back."""

    def statistic(one: Resampled, *more: Resampled) -> Resampled:
        if one.values[0] < _LEARNED:
            return NOTHING
        return one.map(lambda a, *b: a - np.max(b, axis=0), *more)

    return compare(statistic, _order, member, *others)


@as_measure
def rank_correlation(card: Card, rows: Sequence[Row]) -> Value | None:
    """Spearman's correlation of the accuracy of `order` with the separation, over all bases."""
    bases = _bases(card)
    ranks = stats.rankdata([separation(base) for base in bases.values()])

    def correlate(*accuracies_R: np.ndarray) -> np.ndarray:
        ours, theirs = ranks - ranks.mean(), stats.rankdata(accuracies_R, axis=0)
        theirs -= theirs.mean(axis=0)
        with np.errstate(invalid="ignore"):  # NaN if all accuracies are equal
            return ours @ theirs / np.sqrt((ours @ ours) * (theirs**2).sum(axis=0))

    def statistic(*accuracies: Resampled) -> Resampled:
        if max(accuracy.values[0] for accuracy in accuracies) < _LEARNED:
            return NOTHING
        return accuracies[0].map(correlate, *accuracies[1:])

    return compare(statistic, _order, *bases)(card, rows)


def separation(base: float) -> float:
    """Return the separation of keys one token apart, at distances up to LONGEST."""
    return tell_apart(_inv_freq(base), LONGEST).separation


def _inv_freq(base: float) -> np.ndarray:
    return Rope(base=base).inv_freq(64)


def _bases(card: Card) -> dict[str, float]:
    """Return the bases of the members that rotate, ascending."""
    rotary = {member: config.model.rotary for member, config in card.configs().items()}
    return {member: x.base for member, x in rotary.items() if isinstance(x, Rope)}


# --- the report ----------------------------------------------------------------------------------


def sections(cards: Sequence[Card], rows: Sequence[Row]) -> Iterator[Item]:
    """Yield the table of the members and the figure."""
    for card in cards:
        if any(row.card == card.name for row in rows):
            lines = [(None, line) for line in _lines(card, rows)]
            yield "Recall and order", "", Table.from_cells(lines, has_all_columns=True)
            yield make_figure("The two axes", "two_axes", draw, card, rows)


def _lines(card: Card, rows: Sequence[Row]) -> Iterator[dict[str, str]]:
    bases = _bases(card)
    for member in card.members:
        line = {"member": member}
        if base := bases.get(member):
            inv_freq = _inv_freq(base)
            facts = tell_apart(inv_freq, LONGEST)
            line |= {"B_m < 0 from": f"{decay.first_violation(inv_freq)}"}
            line |= {"D_1 allows": f"{_allowed(inv_freq)}"}
            line |= {"step": f"{facts.step:.2f}", "separation": f"{facts.separation:.4f}"}
        values = {
            "L50": l50(member),
            "order": order_accuracy(member),
            f"order from {FAR} on": order_accuracy(member, first=FAR),
            "from 64 on": order_accuracy(member, first=64),
        }
        measured = {name: measure(card, rows) for name, measure in values.items()}
        yield line | {name: NONE if x is None else str(x) for name, x in measured.items()}


def _allowed(inv_freq: np.ndarray):
    return bound_l50(inv_freq[None], num_others=_NUM_OTHERS, longest=LONGEST)


def draw(card: Card, rows: Sequence[Row]) -> Figure:
    """Draw L50 and the accuracy of `order` against the base, with two theories of each."""
    figure = figures.new_figure(9.2, 6.0)
    recall, order = figure.subplots(2, 1, sharex=True)
    bases = _bases(card)
    grid = np.geomspace(min(bases.values()), max(bases.values()), 41)
    vectors = list(map(_inv_freq, grid))
    facts = [tell_apart(inv_freq, LONGEST) for inv_freq in vectors]
    best = {
        recall: np.array([_allowed(inv_freq).l50 for inv_freq in vectors]),
        order: np.array([fact.separation for fact in facts]),
    }
    first = [decay.first_violation(inv_freq) or np.inf for inv_freq in vectors]
    equal = {
        recall: np.minimum(first, LONGEST),
        order: np.array([fact.step for fact in facts]),
    }
    found: dict[Any, dict[float, float]] = {recall: {}, order: {}}
    for ax, top in ((recall, LONGEST), (order, 1.0)):
        for member, base in bases.items():
            measure = l50(member) if ax is recall else order_accuracy(member, first=FAR)
            value = measure(card, rows)
            if value is not None and np.isfinite(value.value):  # learned
                found[ax][base] = min(value.value, top)
                ends = max(value.low, 0), min(value.high, top)
                style = {"color": figures.stroke_of(base).color, "marker": "o", "ms": 6, "lw": 1.4}
                figures.error_bar(ax, base, found[ax][base], ends, **style)
    highest = max(found[order].values(), default=0.5)
    styles = {"color": figures.INK, "lw": 1.5}, figures.REFERENCE
    for theory, style in zip((best, equal), styles, strict=True):
        # A theory says an order among bases; it is drawn between chance and the highest accuracy.
        scaled = 0.5 + (highest - 0.5) * theory[order] / theory[order].max()
        recall.plot(grid, theory[recall], zorder=1, **style)
        order.plot(grid, scaled, zorder=1, **style)
    recall.set(xscale="log", yscale="log", ylabel="L50 of recall\n(tokens, log scale)")
    figures.token_axis(recall.yaxis)
    order.set(ylabel=f"accuracy of order\nfrom {FAR} tokens on", xlabel="base (log scale)")
    order.set_ylim(0.4, 1.02)
    figures.power_axis(order.xaxis)
    labels = (
        "best weights: D_1, and\nseparation (scaled)",
        "equal weights: B_m < 0, and\nstep (scaled)",
    )
    handles = [figures.handle(text, **style) for text, style in zip(labels, styles, strict=True)]
    figures.add_legend(figure, handles, below=True)
    covered = [base for base, tokens in found[recall].items() if tokens >= LONGEST]
    ordered = [base for base, accuracy in found[order].items() if accuracy > highest - 0.03]
    if covered and ordered:
        message = (
            f"Recall covers the context from base {min(covered):,.0f} on, and order is within "
        )
        message += f".03 of its best at bases {min(ordered):,.0f} to {max(ordered):,.0f}"
        figures.set_message(figure, message)
    return figure
