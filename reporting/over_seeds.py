"""How far the seeds of a setting lie apart: each seed's own value, their mean and t interval."""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from evals import rows as rows_lib
from evals.estimate import summaries
from reporting.labels import axes_of
from reporting.members import Member, tasks
from reporting.page import NONE, Table, words
from reporting.style import folded, grid, member_legend, tag


class Values(NamedTuple):
    """One number of a member, seed by seed.

    Attributes:
      known: of the seeds that have it.
      beyond: which of these are the longest distance asked, and so less than the number.
      missing: how many seeds did not learn the task, and have none.
    """

    known: np.ndarray
    beyond: np.ndarray
    missing: int = 0

    @classmethod
    def of(cls, values: Sequence[float]) -> "Values":
        """Of every seed, without a limit."""
        return cls(np.array(values), np.zeros(len(values), bool))


class Measure(NamedTuple):
    """A number that every seed has.

    Attributes:
      name: with its unit.
      of: from a member to its values; None: it was not measured.
      ratios: whether differences are ratios: then logarithms are averaged, and drawn.
      share: whether it lies in [0, 1].
    """

    name: str
    of: Callable[[Member], Values | None]
    ratios: bool = False
    share: bool = False

    def interval(self, values: Values) -> summaries.Interval | None:
        """Of the mean over seeds; None where it would be of nothing, or of limits."""
        if values.beyond.any() or not len(values.known):
            return None
        found = summaries.over_seeds(values.known, ratios=self.ratios)
        return summaries.Interval(*np.clip(found, 0, 1).tolist()) if self.share else found

    def text(self, values: Values) -> str:
        """`12.3 [10.1, 15]`; what has no mean in words."""
        seeds = len(values.known) + values.missing
        found = NONE
        if values.beyond.any():
            found = f"> {values.known.max():.3g} in {values.beyond.sum()} of {seeds}"
        elif interval := self.interval(values):
            found = f"{interval.mean:.3g}"
            if len(values.known) > 1:
                found += f" [{interval.low:.3g}, {interval.high:.3g}]"
        learned = f", {values.missing} of {seeds} not learned" if values.missing else ""
        return found + learned


def measures(members: Sequence[Member]) -> list[Measure]:
    """What some member has of several seeds: of the leading retrieval task, and of text."""
    found = []
    for task in tasks(members)[:1]:
        of_task = functools.partial(_estimated, task)
        found += [
            Measure(f"{task}: L50 (tokens)", functools.partial(_l50, task), ratios=True),
            Measure(f"{task}: worst bin", functools.partial(of_task, "worst_accuracy"), share=True),
            Measure(f"{task}: mean", functools.partial(of_task, "mean_accuracy"), share=True),
        ]
    found.append(Measure("training loss (nats)", _loss))
    for task in tasks(members, "likelihood")[:1]:
        perplexity = functools.partial(_perplexity, task)
        found.append(Measure(f"{task}: perplexity", perplexity, ratios=True))
    return [
        measure
        for measure in found
        if any(len(values.known) > 1 for member in members if (values := measure.of(member)))
    ]


def _l50(task: str, member: Member) -> Values | None:
    if (estimate := member.estimates.get(task)) is None:
        return None
    learned = [seed for seed in estimate.seeds if seed.learned]
    l50, beyond = ([getattr(seed, name) for seed in learned] for name in ("l50", "beyond"))
    missing = estimate.num_seeds - len(learned)
    return Values(np.array(l50), np.array(beyond, bool), missing)


def _estimated(task: str, name: str, member: Member) -> Values | None:
    if (estimate := member.estimates.get(task)) is None:
        return None
    return Values.of([getattr(seed, name) for seed in estimate.seeds])


def _loss(member: Member) -> Values | None:
    """Mean of the last tenth of training."""
    ends = [nats[-max(1, len(nats) // 10) :].mean() for _, nats in member.losses]
    return Values.of(ends) if ends else None


def _perplexity(task: str, member: Member) -> Values | None:
    measured = member.nearest(task)
    if measured is None:
        return None
    rows = measured.rows
    of_seeds = [rows_lib.select(rows, seed=seed) for seed in np.unique(rows["seed"]).tolist()]
    return Values.of([summaries.perplexity(each) for each in of_seeds])


def table(members: Sequence[Member]) -> Table:
    """Of every member: the mean over its seeds, with its interval, of every measure."""
    lines = []
    for member in members:
        cells = {"member": member.label, "seeds": str(len(member.seeds))}
        for measure in measures(members):
            values = measure.of(member)
            cells[measure.name] = measure.text(values) if values else NONE
        lines.append((member.index, cells))
    return Table.of(lines, caption=words("over_seeds_table")["caption"])


def figures(members: Sequence[Member]) -> dict[str, Figure]:
    """By the field that is drawn along x, of those in which members differ."""
    axes = axes_of([member.config for member in members]) or {"": [""] * len(members)}
    return {name: _figure(members, name, values) for name, values in axes.items()}


def _figure(members: Sequence[Member], axis: str, settings: Sequence[str]) -> Figure:
    """A panel a measure; members of one setting stand side by side."""
    shown = measures(members)
    figure, panels = grid(len(shown), height=3.1)
    names = list(dict.fromkeys(settings))
    places = np.array([names.index(setting) for setting in settings], float)
    for place, name in enumerate(names):
        here = np.flatnonzero([setting == name for setting in settings])
        places[here] = place + 0.7 * ((np.arange(len(here)) + 0.5) / len(here) - 0.5)
    for ax, measure in zip(panels, shown, strict=True):
        for member, x in zip(members, places, strict=True):
            if values := measure.of(member):
                _draw(ax, measure, member, x, values)
        ax.set_title(folded(measure.name), fontsize=10)
        tilted = {"rotation": 30, "ha": "right"} if sum(map(len, names)) > 18 else {}
        ax.set_xticks(range(len(names)), names, **tilted)
        ax.set_xlim(-0.6, len(names) - 0.4)
        ax.grid(visible=False, axis="x")
        if measure.share:
            ax.set_ylim(-0.03, 1.03)
        if measure.ratios:
            ax.set_yscale("log", base=2)
            ax.yaxis.set_major_formatter("{x:.4g}")
            ax.yaxis.set_minor_formatter("")
    figure.supxlabel(axis, fontsize=10)
    member_legend(figure, members, marker="o")
    return figure


def _draw(ax: Axes, measure: Measure, member: Member, x: float, values: Values) -> None:
    """A dot a seed, and the mean with its interval to the right of them."""
    color, text = member.look.color, f"{member.label}, {measure.name}: {measure.text(values)}"
    dots = {"ls": "none", "ms": 4, "alpha": 0.6, "color": color}
    for marker, which in (("o", ~values.beyond), ("^", values.beyond)):
        known = values.known[which]
        tag(ax.plot([x] * len(known), known, marker=marker, **dots), member, text)
    interval = measure.interval(values)
    if interval and len(values.known) > 1:
        ends = [[interval.mean - interval.low], [interval.high - interval.mean]]
        look = {"fmt": "_", "color": color, "elinewidth": 1.8, "capsize": 3, "ms": 8}
        bar = ax.errorbar(x + 0.08, interval.mean, ends, **look)
        tag(bar.get_children(), member, text)
