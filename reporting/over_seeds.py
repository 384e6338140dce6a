"""Variation between seeds of a setting: each seed's value, their mean and its t interval."""

import collections
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from evals import rows as rows_lib
from evals.estimate import summaries
from evals.estimate.effective_context import MEASURED
from reporting.members import Member, tasks
from reporting.page import NONE, Table, format_captions


class Values(NamedTuple):
    """Values of one measure for one member.

    Attributes:
      known: values of the seeds that have one.
      beyond: which of these are only lower bounds: the longest distance tested.
      missing: verdict of each seed without a value.
    """

    known: np.ndarray
    beyond: np.ndarray
    missing: tuple[str, ...] = ()


def _uncensored(values: Sequence[float]) -> Values:
    return Values(np.array(values), np.zeros(len(values), bool))


class Measure(NamedTuple):
    """A number that every seed has.

    Attributes:
      name: with its unit.
      values: from a member to its values; None: not measured.
      ratios: whether the mean and the axis are logarithmic.
      share: whether values are in [0, 1].
    """

    name: str
    values: Callable[[Member], Values | None]
    ratios: bool = False
    share: bool = False

    def interval(self, values: Values) -> summaries.Interval | None:
        """Return the mean over seeds with its interval; None without values or with bounds."""
        if values.beyond.any() or not len(values.known):
            return None
        interval = summaries.over_seeds(values.known, ratios=self.ratios)
        return summaries.Interval(*np.clip(interval, 0, 1).tolist()) if self.share else interval

    def text(self, values: Values) -> str:
        """Return `12.3 [10.1, 15]`, or text if there is no mean."""
        seeds = len(values.known) + len(values.missing)
        text = NONE
        if values.beyond.any():
            text = f"> {values.known.max():.3g} in {values.beyond.sum()} of {seeds}"
        elif interval := self.interval(values):
            text = f"{interval.mean:.3g}"
            if len(values.known) > 1:
                text += f" [{interval.low:.3g}, {interval.high:.3g}]"
        for verdict, count in collections.Counter(values.missing).items():
            text += f", {count} of {seeds} {verdict.lower().replace('_', ' ')}"
        return text


def list_measures(members: Sequence[Member]) -> list[Measure]:
    """Return the measures that a member has for several seeds: leading retrieval task and text."""
    task, text = (next(iter(tasks(members, kind)), "") for kind in ("retrieval", "likelihood"))
    measures = (
        Measure(f"{task}: L50 (tokens)", lambda m: _l50(m, task), ratios=True),
        Measure(f"{task}: worst bin", lambda m: _seed_field(m, task, "worst"), share=True),
        Measure(f"{task}: mean", lambda m: _seed_field(m, task, "mean"), share=True),
        Measure("training loss (nats)", _losses),
        Measure(f"{text}: perplexity", lambda m: _perplexities(m, text), ratios=True),
    )
    return [
        measure
        for measure in measures
        if any(len(values.known) > 1 for member in members if (values := measure.values(member)))
    ]


def _l50(member: Member, task: str) -> Values | None:
    if (estimate := member.estimates.get(task)) is None:
        return None
    known = [seed for seed in estimate.seeds if seed.verdict == MEASURED or seed.is_beyond]
    beyond = np.array([seed.is_beyond for seed in known], bool)
    missing = tuple(seed.verdict for seed in estimate.seeds if seed not in known)
    return Values(np.array([seed.l50 for seed in known]), beyond, missing)


def _seed_field(member: Member, task: str, name: str) -> Values | None:
    if (estimate := member.estimates.get(task)) is None:
        return None
    return _uncensored([getattr(seed, f"{name}_accuracy") for seed in estimate.seeds])


def _losses(member: Member) -> Values | None:
    """Return the mean loss of each seed over the last tenth of training."""
    ends = [nats[-max(1, len(nats) // 10) :].mean() for _, nats in member.losses]
    return _uncensored(ends) if ends else None


def _perplexities(member: Member, task: str) -> Values | None:
    if (measured := member.nearest(task)) is None:
        return None
    rows = measured.rows
    seeds = [rows_lib.select(rows, seed=seed) for seed in np.unique(rows["seed"]).tolist()]
    return _uncensored(list(map(summaries.perplexity, seeds)))


def seeds_table(members: Sequence[Member], seeds: str) -> Table:
    """Return the mean over seeds with its interval, by member and measure."""
    lines = []
    for member in members:
        cells = {"member": member.label, "seeds": str(len(member.seeds))}
        for measure in list_measures(members):
            values = measure.values(member)
            cells[measure.name] = measure.text(values) if values else NONE
        lines.append((member.index, cells))
    return Table.from_cells(lines, caption=format_captions("over_seeds", seeds=seeds)["caption"])
