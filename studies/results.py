"""Results of a card: estimates of its members from their rows, beside their forecasts."""

import functools
import json
import math
from collections.abc import Sequence

import numpy as np

from evals.estimate.effective_context import Estimate, Seed, estimate_trials
from evals.estimate.trials import Trials
from experiment.config import ExperimentConfig, to_dict
from experiment.run import flatten, is_operational
from studies import budgets
from studies.card import Card, SeedResult
from studies.forecasts import Forecasts
from studies.rows import Answers, Row

Key = tuple[str, str, str]  # names of a member, a measurement and a task


class CardResults:
    """Results of a card's runs.

    Attributes:
      card: the card.
      forecasts: D_H's bound on L50 in tokens by member and measurement; inf: beyond all distances.
      rows: the card's rows after all budgets.
      last_rows: row after the last budget, by member and seed, whichever card has it: a run that
        two cards share counts for both, up to the largest budget of each card. If any seed of a
        member is finished, its unfinished seeds are left out.
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
        self.rows = [row for row in rows if row.card == card.name]
        configs = card.configs()
        members = {identity(config): name for name, config in configs.items()}
        largest = max(
            budgets.count_tokens(budget)
            for config in configs.values()
            for budget in budgets.make_budgets(card, config)
        )
        self._rows: dict[str, list[Row]] = {name: [] for name in self.last_rows}
        for row in sorted(rows, key=lambda row: (row.tokens, row.card == card.name)):
            member = members.get(identity(row.config))
            if member and (row.card == card.name or row.tokens <= largest):
                self._rows[member].append(row)
                self.last_rows[member][row.seed] = row
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

    def trained_on(self, member: str) -> str:
        """Return the answers that a member trained on, and what the last doubling of them added.

        A document of training has as many answers as one of the evaluation.
        """
        rows, growth = self.last_rows[member].values(), []
        for row in rows:
            shorter = [
                before
                for before in self._rows[member]
                if before.seed == row.seed and before.tokens < 0.6 * row.tokens
            ]
            growth += [_growth(before, row) for before in shorter[-1:]]
        counts = sorted({count_answers(row) for row in rows})
        text = " / ".join(f"{count / 1000:,.0f}k" for count in counts) + " answers"
        if not growth:
            return text
        octaves, accuracy = np.mean(growth, axis=0)
        by_l50 = f"{octaves:+.2f} octaves, " if math.isfinite(octaves) else ""
        return f"{text}; {by_l50}{accuracy:+.2f} a doubling"

    def budgets(self, member: str) -> str:
        """Return L50 after each budget as text, the geometric mean over the seeds that have it."""
        by_tokens: dict[int, dict[int, float]] = {}
        for row in self._rows[member]:
            by_tokens.setdefault(row.tokens, {})[row.seed] = row.l50
        means = (np.exp(np.mean(np.log([*l50s.values()]))) for l50s in by_tokens.values())
        return " / ".join(f"{l50:.3g}" for l50 in means)

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

    def _l50(self, key: Key, seed: Seed) -> float:
        """Return L50 in tokens of a seed with a finite one; nan: not learned.

        A model with masked heads that is right nowhere has the shortest distance as its L50:
        whether it has learned the task shows with all its heads.
        """
        answers_nothing = key[1] in self._masked and not seed.learned
        return max(self.estimates[key].shortest, 1) if answers_nothing else seed.l50


@functools.cache
def identity(config: ExperimentConfig) -> str:
    """Return a text that is equal for runs that differ at most in card, seed and budget."""
    fields = flatten(to_dict(config))
    seeds = "name", "question", "seed", "data.seed", "train.num_steps"
    left_out = {name for name in fields if name in seeds or is_operational(name)}
    return json.dumps({name: x for name, x in fields.items() if name not in left_out}, default=str)


def count_answers(row: Row) -> int:
    """Return the answers of the training of a row's run, as documents of the evaluation have."""
    counts = next((item.counts for item in row.answers if item.counts is not None), None)
    documents = row.tokens / row.config.data.context_length
    return 0 if counts is None else round(documents * counts.asked.sum() / len(counts.asked))


def _growth(before: Row, after: Row) -> tuple[float, float]:
    """Return the growth of L50 in octaves, and of mean accuracy, for each doubling of tokens."""
    doublings = math.log2(after.tokens / before.tokens)
    octaves = math.log2(after.l50 / before.l50) if math.isfinite(before.l50) else math.nan
    return octaves / doublings, (after.mean_accuracy - before.mean_accuracy) / doublings


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
