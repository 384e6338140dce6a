"""What one run, or the seeds of one setting, answered: one task, length and variant at a time."""

import dataclasses
import functools

import numpy as np

import evals
from evals import rows as rows_lib
from evals.estimate import effective_context
from evals.estimate.effective_context import Estimate
from evals.kinds import KINDS, Kind
from evals.rows import Rows
from experiment.config import TRAINED, ExperimentConfig
from experiment.run import RunDirectory
from model import rotary as rotary_lib
from theory.predictions import Predictions, predict


@dataclasses.dataclass(frozen=True, eq=False)
class Measurement:
    """Answers under one variant, on one task at one context length.

    Attributes:
      config: of the run, in force at the step evaluated.
      task: as an expression.
      length: context length of the evaluation, tokens.
      rotary: the variant evaluated with, as an expression.
      rows: of all seeds, at the last checkpoint evaluated.
      trained: the same under the variant of training; None if that was not evaluated.
    """

    config: ExperimentConfig
    task: str
    length: int
    rotary: str
    rows: Rows
    trained: Rows | None = None

    @property
    def kind(self) -> str:
        """`Task.kind`."""
        return evals.parse(self.task).kind

    @property
    def of_kind(self) -> Kind:
        """What `evals.kinds` says of that kind."""
        return KINDS[self.kind]

    @property
    def compared(self) -> bool:
        """`Task.compared`."""
        return evals.parse(self.task).compared

    @functools.cached_property
    def variant(self) -> str:
        """`rotary` relative to training, so that members of a sweep share names.

        "trained", or the expression without the parameters that were taken over.
        """
        trained = self.config.model.rotary
        variant = rotary_lib.parse_pattern(self.rotary)
        if variant == trained:
            return TRAINED
        given = rotary_lib.inherited_parameters(trained, self.config.data.context_length)
        return rotary_lib.expression(variant, given)

    @functools.cached_property
    def theory(self) -> Predictions:
        """Of the variant evaluated with, at that length: dynamic ones depend on it."""
        rotary = rotary_lib.parse_pattern(self.rotary)
        model = dataclasses.replace(self.config.model, rotary=rotary)
        return predict(model.rotary_table(self.config.data.context_length, self.length).inv_freq)

    @functools.cached_property
    def estimate(self) -> Estimate:
        """Effective context, of a retrieval task."""
        return effective_context.estimate(self.rows)

    @functools.cached_property
    def by_seed(self) -> dict[int, Estimate]:
        """Effective context of each seed; too few resamples for an interval."""
        seeds = np.unique(self.rows["seed"]).tolist()
        return {
            seed: effective_context.estimate(rows_lib.select(self.rows, seed=seed), resamples=50)
            for seed in seeds
        }

    @functools.cached_property
    def value(self) -> float:
        """The one number of it, as `evals.kinds` says."""
        return self.of_kind.value(self.rows)

    @property
    def text(self) -> str:
        """The same as text; of retrieval, effective context instead."""
        return self.of_kind.text(self.rows)

    @property
    def own_columns(self) -> dict[str, float]:
        """What this task alone has to say, `Task.columns`."""
        return evals.parse(self.task).columns(self.rows, self.trained)


def before_divergence(run: RunDirectory, rows: Rows) -> Rows:
    """Without those of checkpoints whose parameters a run diverged from: they say nothing."""
    if run.diverged_at is None:
        return rows
    return {name: column[rows["step"] < run.diverged_at] for name, column in rows.items()}


def measurements(rows: Rows, config: ExperimentConfig) -> list[Measurement]:
    """By task, variant (both as they come in `rows`) and length (ascending).

    Of every task and variant the last checkpoint; a seed that has not come so far is left out.
    """
    found = []
    for task in dict.fromkeys(rows["task"].tolist()):
        of_task = rows_lib.select(rows, task=task)
        for rotary in dict.fromkeys(of_task["rotary"].tolist()):
            latest = rows_lib.select(of_task, rotary=rotary)
            latest = rows_lib.select(latest, step=latest["step"].max())
            for length in np.unique(latest["length"]).tolist():
                of_length = rows_lib.select(latest, length=length)
                found.append(Measurement(config, task, length, rotary, of_length))
    trained = {(m.task, m.length): m.rows for m in found if m.variant == TRAINED}
    return [dataclasses.replace(m, trained=trained.get((m.task, m.length))) for m in found]
