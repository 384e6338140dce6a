"""What became of a card: estimates of what was measured, and a mark for every forecast and claim.

One rule marks every forecast: it is held if L50, the mean over seeds of its logarithm, is within
half an octave of it. What lies beyond all distances asked counts as the longest of them, forecast
or measured.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from evals.estimate.effective_context import Estimate, estimate_trials
from evals.estimate.trials import COUNTS, Trials
from studies.card import Card, Claim, Measured
from studies.rows import Answers, Row

HALF_OCTAVE = 0.5
_SEEDS_TO_CONFIRM = 3  # fewer have only been seen

HELD, FAILED, REFUTED = "held", "failed", "refuted"
NOT_CONVERGED, NOT_LEARNED, NOT_RUN = "not converged", "not learned", "not run"
NOT_FINISHED, NO_FORECAST = "not finished", "no forecast"
WORDS = HELD, FAILED, REFUTED, NOT_CONVERGED, NOT_LEARNED, NOT_FINISHED, NOT_RUN, NO_FORECAST


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mark:
    """What became of a forecast or a claim.

    Attributes:
      word: one of `WORDS`.
      num_seeds: it rests on, the fewest of any member.
    """

    word: str
    num_seeds: int

    def __str__(self) -> str:
        if self.word in (NOT_RUN, NO_FORECAST):
            return self.word
        seen = "seen, " if self.num_seeds < _SEEDS_TO_CONFIRM and self.word != NOT_FINISHED else ""
        return f"{self.word} ({seen}{self.num_seeds} seed{'s' * (self.num_seeds > 1)})"


Key = tuple[str, str, str]  # a member, a measurement and a task's name


class CardResults:
    """What the rows say of a card: see `studies.card.Results`.

    Attributes:
      card: the card.
      forecasts: of its members, L50 in tokens; inf: beyond all distances asked.
      rows: of the card, those of all doublings, in their order.
      last: of each member, the row of its last doubling, by seed.
      trials, estimates: of each member, measurement and task, over all its seeds.
    """

    def __init__(self, card: Card, rows: Sequence[Row], forecasts: Mapping[str, float]):
        """Of the rows of all cards."""
        self.card, self.forecasts = card, forecasts
        self.last: dict[str, dict[int, Row]] = {member.name: {} for member in card.members}
        mine = (row for row in rows if row.card == card.name and row.member in self.last)
        self.rows = sorted(mine, key=lambda row: row.tokens)
        for row in self.rows:
            self.last[row.member][row.seed] = row
        answers: dict[Key, dict[int, Answers]] = {}
        for member, by_seed in self.last.items():
            for seed, row in sorted(by_seed.items()):
                for each in row.answers:
                    key = member, each.measurement, each.task.partition("(")[0]
                    if each.counts is not None:
                        answers.setdefault(key, {}).setdefault(seed, each)
        self.trials = {key: _trials(found) for key, found in answers.items()}
        self.estimates = {
            key: estimate_trials(
                self.trials[key], task=next(iter(found.values())).task, lengths=_lengths(found)
            )
            for key, found in answers.items()
        }
        self.read: set[str] = set()  # members that were asked about, for the mark of a claim

    def of(self, member: str, measurement: str = "whole", task: str = "kv") -> list[Measured]:
        """See `studies.card.Results`."""
        self.read.add(member)
        estimate = self.estimates.get((member, measurement, task))
        if estimate is None:
            return []
        return [
            Measured(
                seed=seed.seed,
                tokens=self.last[member][seed.seed].tokens,
                converged=self.last[member][seed.seed].final != NOT_CONVERGED,
                ceiling=seed.ceiling,
                l50=math.inf if seed.beyond else seed.l50,
                worst=seed.worst_accuracy,
                mean_accuracy=seed.mean_accuracy,
                longest=estimate.longest,
            )
            for seed in estimate.seeds
        ]

    def forecast(self, member: str) -> float:
        """See `studies.card.Results`."""
        self.read.add(member)
        return self.forecasts[member]

    def first(self, member: str) -> Estimate | None:
        """Of what a member was measured by first."""
        for (name, *_), estimate in self.estimates.items():
            if name == member:
                return estimate
        return None

    def forecast_mark(self, member: str) -> Mark:
        """Whether a member's forecast holds."""
        if member not in self.forecasts:
            return Mark(word=NO_FORECAST, num_seeds=0)
        if hindrance := self._hindrance([member]):
            return hindrance
        estimate = self.first(member)
        assert estimate is not None  # its rows are there
        off = octaves_between(self.forecasts[member], estimate)
        return self._mark(HELD if abs(off) <= HALF_OCTAVE else FAILED, [member])

    def claim_mark(self, claim: Claim) -> Mark:
        """Whether a claim stands."""
        self.read.clear()
        refuted = claim.refuted(self)
        if hindrance := self._hindrance(sorted(self.read)):
            return hindrance
        if refuted is None:
            return Mark(word=NOT_RUN, num_seeds=0)
        return self._mark(REFUTED if refuted else HELD, sorted(self.read))

    def _mark(self, word: str, members: Sequence[str]) -> Mark:
        return Mark(word=word, num_seeds=min(len(self.last[member]) for member in members))

    def _hindrance(self, members: Sequence[str]) -> Mark | None:
        """Why nothing can be said of these members yet."""
        rows = [row for member in members for row in self.last[member].values()]
        estimates = [self.first(member) for member in members]
        if not all(estimates):
            return Mark(word=NOT_RUN, num_seeds=0)
        for word, applies in (
            (NOT_FINISHED, any(not row.final for row in rows)),
            (NOT_LEARNED, any(not s.learned for each in estimates if each for s in each.seeds)),
            (NOT_CONVERGED, any(row.final == NOT_CONVERGED for row in rows)),
        ):
            if applies:
                return self._mark(word, members)
        return None


def _trials(answers: Mapping[int, Answers]) -> Trials:
    """Of one member by one measurement and task, all seeds together."""
    counts = {seed: each.counts for seed, each in answers.items() if each.counts is not None}
    columns = [each.columns(seed) for seed, each in counts.items()]
    shortest = min(each.shortest for each in counts.values())
    longest = max(each.longest for each in counts.values())
    return Trials.of_counts(
        {name: np.concatenate([each[name] for each in columns]) for name in COUNTS},
        distances=(shortest, longest),
        chance=next(iter(counts.values())).chance,
    )


def _lengths(answers: Mapping[int, Answers]) -> tuple[int, int]:
    """Of evaluation and of training: marks look at the first alone."""
    first = next(iter(answers.values()))
    return first.length, first.length


def log_l50(estimate: Estimate) -> float:
    """log2 of L50 in tokens, the mean over seeds; beyond all distances counts as the longest."""
    values = [estimate.longest if each.beyond else each.l50 for each in estimate.seeds]
    return float(np.mean(np.log2(values)))


def octaves_between(tokens: float, estimate: Estimate) -> float:
    """By how many octaves L50 was measured beyond `tokens`; inf counts as the longest distance."""
    tokens = min(tokens, estimate.longest)
    return log_l50(estimate) - math.log2(max(tokens, estimate.shortest, 1))
