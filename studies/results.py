"""Results of a card: estimates of its members from their rows, beside their forecasts."""

import math
from collections.abc import Sequence

import numpy as np

from evals.estimate.effective_context import Estimate, Seed, estimate_trials
from evals.estimate.trials import Trials
from studies.card import Card, SeedResult
from studies.forecasts import Forecasts
from studies.rows import Answers, Row

Key = tuple[str, str, str]  # names of a member, a measurement and a task


class CardResults:
    """Results of a card's runs.

    Attributes:
      card: the card.
      forecasts: L50 in tokens by member and measurement; inf: beyond all distances.
      rows: the card's rows after all budgets, ascending by tokens.
      last_rows: row after the last budget, by member and seed. If any seed of a member is finished,
        its unfinished seeds are left out.
      trials, estimates: by member, measurement and task, over all seeds.
    """

    def __init__(self, card: Card, rows: Sequence[Row], forecasts: Forecasts):
        """Estimate from the rows and the forecasts of all cards."""
        self.card = card
        self.forecasts = {
            (member, measurement): math.inf if record["beyond"] else float(record["l50"])
            for member, records in forecasts.get(card.name, {}).items()
            for measurement, record in records.items()
            if record["l50"] is not None
        }
        self.last_rows: dict[str, dict[int, Row]] = {member.name: {} for member in card.members}
        card_rows = (row for row in rows if row.card == card.name and row.member in self.last_rows)
        self.rows = sorted(card_rows, key=lambda row: row.tokens)
        for row in self.rows:
            self.last_rows[row.member][row.seed] = row
        for member, by_seed in self.last_rows.items():
            finished = {seed: row for seed, row in by_seed.items() if row.final}
            self.last_rows[member] = finished or by_seed
        self.trials: dict[Key, Trials] = {}
        self.estimates: dict[Key, Estimate] = {}
        for key, answers in self._answers().items():
            first = next(iter(answers.values()))
            self.trials[key] = make_trials(answers)
            # Only the first length matters here, that of the evaluation.
            self.estimates[key] = estimate_trials(
                self.trials[key], task=first.task, lengths=(first.length, first.length)
            )
        self._masked = {m.name for m in card.measurements if m.masked_heads}

    def _answers(self) -> dict[Key, dict[int, Answers]]:
        """Collect the counted answers of the last rows by key and seed."""
        by_key: dict[Key, dict[int, Answers]] = {}
        for member, by_seed in self.last_rows.items():
            for seed, row in sorted(by_seed.items()):
                for answers in row.answers:
                    key = member, answers.measurement, answers.task.partition("(")[0]
                    if answers.counts is not None:
                        by_key.setdefault(key, {}).setdefault(seed, answers)
        return by_key

    def seeds(self, member: str, measurement: str = "whole", task: str = "kv") -> list[SeedResult]:
        """Return the result of each seed, in order; `task` is a name without parameters."""
        key = member, measurement, task
        if key not in self.estimates:
            return []
        estimate, rows = self.estimates[key], self.last_rows[member]
        return [
            SeedResult(
                seed=seed.seed,
                tokens=rows[seed.seed].tokens,
                converged=rows[seed.seed].final != "not converged",
                ceiling=seed.ceiling,
                l50=math.inf if seed.beyond else self._l50(key, seed),
                worst=seed.worst_accuracy,
                mean_accuracy=seed.mean_accuracy,
                longest=estimate.longest,
                forecast=self.forecasts.get((member, self.card.measurements[0].name), math.nan),
            )
            for seed in estimate.seeds
        ]

    def find_key(self, member: str, measurement: str) -> Key | None:
        """Return the key of the first task of a measurement; None if it was not measured."""
        return next((key for key in self.estimates if key[:2] == (member, measurement)), None)

    def unmasked(self, key: Key) -> Estimate:
        """Return the estimate of the same model with all heads, if that was measured."""
        member, measurement, task = key
        if measurement not in self._masked:
            return self.estimates[key]
        names = (m.name for m in self.card.measurements if m.name not in self._masked)
        keys = ((member, name, task) for name in names)
        return self.estimates[next((other for other in keys if other in self.estimates), key)]

    def octaves_beyond(self, tokens: float, key: Key) -> float:
        """Return log2 of measured L50 over `tokens`; both at most the longest distance measured."""
        estimate = self.estimates[key]
        tokens = min(tokens, estimate.longest)
        return self.log_l50(key) - math.log2(max(tokens, estimate.shortest, 1))

    def log_l50(self, key: Key) -> float:
        """Return log2 of L50 in tokens, the mean over seeds."""
        estimate = self.estimates[key]
        values = [
            estimate.longest if seed.beyond else self._l50(key, seed) for seed in estimate.seeds
        ]
        return float(np.mean(np.log2(values)))

    def _l50(self, key: Key, seed: Seed) -> float:
        """Return L50 in tokens of a seed with a finite one; nan: not learned.

        A model with masked heads that is right nowhere has the shortest distance as its L50:
        whether it has learned the task shows with all its heads.
        """
        answers_nothing = key[1] in self._masked and not seed.learned
        return max(self.estimates[key].shortest, 1) if answers_nothing else seed.l50


def make_trials(answers: dict[int, Answers]) -> Trials:
    """Join the counts of all seeds, by seed."""
    counts = {seed: item.counts for seed, item in answers.items() if item.counts is not None}
    columns = [item.columns(seed) for seed, item in counts.items()]
    shortest = min(item.shortest for item in counts.values())
    longest = max(item.longest for item in counts.values())
    return Trials.from_counts(
        {name: np.concatenate([column[name] for column in columns]) for name in columns[0]},
        distances=(shortest, longest),
        chance=next(iter(counts.values())).chance,
    )
