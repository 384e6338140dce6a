"""Recall and order by base: measures of the claims, the table and the figure."""

from collections.abc import Iterator, Sequence

import numpy as np
from matplotlib.figure import Figure
from scipy import stats

from ropewalk.evals.estimate.bins import fine_bin_start
from ropewalk.model.rotary.rope import Rope
from ropewalk.reporting.members import describe_range
from ropewalk.reporting.page import NONE, Item, Table, make_figure
from ropewalk.studies.capability.measures import l50
from ropewalk.studies.card import Card, Value, as_measure
from ropewalk.studies.language_model.measures import (
    NOTHING,
    Resampled,
    Sums,
    measure_mean,
    over_seeds,
    runs_of,
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


def _over_seeds(
    card: Card, rows: Sequence[Row], members: Sequence[str], statistic, first: int = FAR
) -> Value | None:
    """Return a statistic of the accuracies of members over seeds; open until all seeds are in."""
    by_seed = [runs_of(rows, card.name, member) for member in members]
    values = []
    for seed in sorted(set.intersection(*map(set, by_seed))):
        accuracies = [_order(runs[seed], first) for runs in by_seed]
        if all(accuracies):
            values.append(statistic(*accuracies))
    if not values:
        return None
    value = over_seeds(values)
    return value if len(values) >= len(card.seeds) else value._replace(low=-np.inf, high=np.inf)


@as_measure
def order_accuracy(card: Card, rows: Sequence[Row], member: str, first: int = 1) -> Value | None:
    """Accuracy of `order` of a member at distances from `first` on."""
    return _over_seeds(card, rows, [member], lambda accuracy: accuracy, first)


@as_measure
def order_difference(card: Card, rows: Sequence[Row], member: str, *others: str) -> Value | None:
    """Accuracy of a member less that of the best of others, at distances from FAR on."""

    def statistic(one: Resampled, *more: Resampled) -> Resampled:
        if one.values[0] < _LEARNED:
            return NOTHING
        return one.map(lambda a, *b: a - np.max(b, axis=0), *more)

    return _over_seeds(card, rows, [member, *others], statistic)


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

    return _over_seeds(card, rows, list(bases), statistic)


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
    """Draw L50 and the accuracy of `order` against the base, with the theories of both."""
    figure = figures.new_figure(9.2, 6.0)
    recall, order = figure.subplots(2, 1, sharex=True)
    bases = _bases(card)
    grid = np.geomspace(min(bases.values()), max(bases.values()), 41)
    allowed = [_allowed(_inv_freq(base)).l50 for base in grid]
    first = [min(decay.first_violation(_inv_freq(base)) or LONGEST, LONGEST) for base in grid]
    lines = {
        "D_1: what one head can recall": (recall, allowed, {"color": figures.INK, "lw": 1.5}),
        "B_m < 0": (recall, first, figures.REFERENCE),
    }
    separations = np.array([separation(base) for base in grid])
    steps = np.array([tell_apart(_inv_freq(base), LONGEST).step for base in grid])
    # Both theories say an order among bases; they are drawn between .5 and the best accuracy.
    best, reaches = 0.5, {}
    for member, base in bases.items():
        color = figures.stroke_of(base).color
        for ax, measure in ((recall, l50(member)), (order, order_accuracy(member, first=FAR))):
            value = measure(card, rows)
            if value is not None:
                top = LONGEST if ax is recall else 1.0
                y = min(value.value, top) if np.isfinite(value.value) else top
                ends = max(value.low, 0), min(value.high, top)
                figures.error_bar(ax, base, y, ends, color=color, marker="o", ms=5, lw=1)
                best = max(best, value.value) if ax is order else best
                reaches |= {f"base {base:,g}": y} if ax is recall else {}
    for name, theory, style in (
        ("separation (scaled)", separations, {"color": figures.INK, "lw": 1.5}),
        ("step of Du et al. (scaled)", steps, figures.REFERENCE),
    ):
        lines[name] = order, 0.5 + (best - 0.5) * theory / theory.max(), style
    for ax, values, style in lines.values():
        ax.plot(grid, values, zorder=1, **style)
    recall.set(xscale="log", yscale="log", ylabel="L50 of recall\n(tokens, log scale)")
    figures.token_axis(recall.yaxis)
    order.set(ylabel=f"accuracy of order\nfrom {FAR} tokens on", xlabel="base (log scale)")
    figures.power_axis(order.xaxis)
    figures.set_message(figure, describe_range("L50 of recall (tokens)", reaches))
    for panel in (recall, order):
        ends = [
            figures.End(grid[-1], values[-1], name, style["color"])
            for name, (ax, values, style) in lines.items()
            if ax is panel
        ]
        figures.label_ends(panel, ends)
    return figure
