"""What became of a card: estimates of what was measured, and a mark for every forecast and claim.

One rule marks every forecast: it is held if L50, the mean over seeds of its logarithm, is within
half an octave of it. What lies beyond all distances asked counts as the longest of them, forecast
or measured. Whether a model has learned to retrieve is asked of it whole: where it is without some
of its heads and right nowhere, it sees no farther than the shortest distance.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from evals.estimate.effective_context import Estimate, Seed, estimate_trials
from evals.estimate.trials import COUNTS, Trials
from studies.card import Card, Claim, Measured
from studies.forecasts import Forecasts
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
      num_seeds: that it rests on, the fewest of any member.
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
      forecasts: of each member and measurement, L50 in tokens; inf: beyond all distances asked.
      rows: of the card, those of all doublings, in their order.
      last: of each member, the row of its last doubling by seed; of finished seeds, if any is.
      trials, estimates: of each member, measurement and task, over all its seeds.
    """

    def __init__(self, card: Card, rows: Sequence[Row], forecasts: Forecasts):
        """Of the rows and the forecasts of all cards."""
        self.card = card
        self.forecasts = {
            (member, measurement): math.inf if made["beyond"] else float(made["l50"])
            for member, of_member in forecasts.get(card.name, {}).items()
            for measurement, made in of_member.items()
            if made["l50"] is not None
        }
        self.last: dict[str, dict[int, Row]] = {member.name: {} for member in card.members}
        mine = (row for row in rows if row.card == card.name and row.member in self.last)
        self.rows = sorted(mine, key=lambda row: row.tokens)
        for row in self.rows:
            self.last[row.member][row.seed] = row
        for member, by_seed in self.last.items():
            # Of a member with finished seeds, the others have nothing to say yet.
            finished = {seed: row for seed, row in by_seed.items() if row.final}
            self.last[member] = finished or by_seed
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
        self._masked = {each.name for each in card.measurements if each.masked_heads}
        self._read: set[Key] = set()  # what a claim asked for, on which its mark rests

    def of(self, member: str, measurement: str = "whole", task: str = "kv") -> list[Measured]:
        """See `studies.card.Results`."""
        self._read.add((member, measurement, task))
        estimate = self.estimates.get((member, measurement, task))
        if estimate is None:
            return []
        return [
            Measured(
                seed=seed.seed,
                tokens=self.last[member][seed.seed].tokens,
                converged=self.last[member][seed.seed].final != NOT_CONVERGED,
                ceiling=seed.ceiling,
                l50=math.inf if seed.beyond else self._l50(measurement, estimate, seed),
                worst=seed.worst_accuracy,
                mean_accuracy=seed.mean_accuracy,
                longest=estimate.longest,
            )
            for seed in estimate.seeds
        ]

    def forecast(self, member: str) -> float:
        """See `studies.card.Results`; of the card's first measurement."""
        return self.forecasts[member, self.card.measurements[0].name]

    def key(self, member: str, measurement: str) -> Key | None:
        """Of the first task of a measurement; None where it was not made."""
        return next((key for key in self.estimates if key[:2] == (member, measurement)), None)

    def forecast_mark(self, member: str, measurement: str) -> Mark:
        """Whether the forecast of a member's L50 by a measurement holds."""
        forecast = self.forecasts.get((member, measurement))
        if forecast is None:
            return Mark(word=NO_FORECAST, num_seeds=0)
        key = self.key(member, measurement)
        if hindrance := self._hindrance([key]):
            return hindrance
        assert key is not None  # or it has not been run
        is_near = abs(self.octaves_between(forecast, key)) <= HALF_OCTAVE
        return self._mark(HELD if is_near else FAILED, [key])

    def claim_mark(self, claim: Claim) -> Mark:
        """Whether a claim stands."""
        self._read.clear()
        refuted = claim.refuted(self)
        read = sorted(self._read)
        if hindrance := self._hindrance(read):
            return hindrance
        if refuted is None:
            return Mark(word=NOT_RUN, num_seeds=0)
        return self._mark(REFUTED if refuted else HELD, read)

    def octaves_between(self, tokens: float, key: Key) -> float:
        """By how many octaves L50 was measured beyond `tokens`; inf: beyond all distances asked."""
        estimate = self.estimates[key]
        tokens = min(tokens, estimate.longest)
        return self.log_l50(key) - math.log2(max(tokens, estimate.shortest, 1))

    def log_l50(self, key: Key) -> float:
        """log2 of L50 in tokens, the mean over seeds."""
        estimate = self.estimates[key]
        values = [
            estimate.longest if seed.beyond else self._l50(key[1], estimate, seed)
            for seed in estimate.seeds
        ]
        return float(np.mean(np.log2(values)))

    def _l50(self, measurement: str, estimate: Estimate, seed: Seed) -> float:
        """In tokens, of what is not beyond all distances; nan where nothing was learned."""
        sees_none = measurement in self._masked and not seed.learned
        return max(estimate.shortest, 1) if sees_none else seed.l50

    def _whole(self, key: Key) -> Estimate:
        """Of the same model with all its heads, if that was measured."""
        member, measurement, task = key
        if measurement not in self._masked:
            return self.estimates[key]
        others = (each.name for each in self.card.measurements if each.name not in self._masked)
        keys = ((member, name, task) for name in others)
        return self.estimates[next((each for each in keys if each in self.estimates), key)]

    def _mark(self, word: str, keys: Sequence[Key]) -> Mark:
        return Mark(word=word, num_seeds=min(len(self.last[member]) for member, *_ in keys))

    def _hindrance(self, keys: Sequence[Key | None]) -> Mark | None:
        """Why nothing can be said of these yet."""
        found = [key for key in keys if key in self.estimates]
        if len(found) < len(keys):
            return Mark(word=NOT_RUN, num_seeds=0)
        rows = [row for member, *_ in found for row in self.last[member].values()]
        learned = [seed.learned for key in found for seed in self._whole(key).seeds]
        for word, applies in (
            (NOT_FINISHED, any(not row.final for row in rows)),
            (NOT_LEARNED, not all(learned)),
            (NOT_CONVERGED, any(row.final == NOT_CONVERGED for row in rows)),
        ):
            if applies:
                return self._mark(word, found)
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
