"""Evaluation results of one run, or of the seeds of one setting, by task, length and variant."""

import dataclasses
import functools
import hashlib
import math
import re
from collections.abc import Mapping

import numpy as np

from ropewalk import evals
from ropewalk.evals import rows as rows_lib
from ropewalk.evals.estimate import effective_context, summaries
from ropewalk.evals.estimate.effective_context import Estimate
from ropewalk.evals.kinds import KINDS, Kind
from ropewalk.evals.rows import Rows
from ropewalk.experiment.config import TRAINED, ExperimentConfig
from ropewalk.experiment.run import RunDirectory
from ropewalk.model import rotary as rotary_lib
from ropewalk.model.rotary.recorded import Recorded
from ropewalk.reporting.page import NONE
from ropewalk.reporting.predictions import Predictions, of_model
from ropewalk.reporting.task_view import view_of


@dataclasses.dataclass(frozen=True, eq=False)
class Measurement:
    """Result rows of one task at one context length under one rotary variant.

    Attributes:
      config: configuration of the run at the evaluated step.
      task: expression of the task.
      length: context length of the evaluation, tokens.
      rotary: expression of the variant of the evaluation.
      rows: rows of all seeds at the last evaluated checkpoint.
      trained: the corresponding rows under the variant of training; None if not evaluated.
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
    def kind_info(self) -> Kind:
        """The entry of this kind in `evals.kinds`."""
        return KINDS[self.kind]

    @property
    def compared(self) -> bool:
        """`TaskView.compared`."""
        return view_of(self.task).compared

    @functools.cached_property
    def variant(self) -> str:
        """`rotary` relative to training, so that members of a sweep share names.

        "trained", or the expression without the parameters inherited from training. A variant of a
        user's file is the name of its class and a digest of its frequencies: files change.
        """
        trained = self.config.model.rotary
        variant = rotary_lib.parse_pattern(self.rotary)
        if variant == trained:
            return TRAINED
        inherited = rotary_lib.inherited_parameters(trained, self.config.data.context_length)
        text = rotary_lib.expression(variant, inherited)
        for own in rotary_lib.unique_variants(variant):
            if isinstance(own, Recorded):
                name = re.sub(r"[^\s,(\[]*\.py:", "", own.name)
                digest = hashlib.sha256(repr(own.values).encode()).hexdigest()[:4]
                text = text.replace(rotary_lib.expression(own, inherited), f"{name}#{digest}")
        return text

    @functools.cached_property
    def theory(self) -> Predictions | None:
        """Predictions for `rotary` at `length`, on which dynamic variants depend."""
        rotary = rotary_lib.parse_pattern(self.rotary)
        model = dataclasses.replace(self.config.model, rotary=rotary)
        return of_model(model, self.config.data.context_length, self.length)

    @functools.cached_property
    def estimate(self) -> Estimate:
        """Effective context (retrieval tasks only)."""
        return effective_context.estimate(self.rows)

    @functools.cached_property
    def by_seed(self) -> dict[int, Estimate]:
        """Effective context of each seed; its resamples are too few for an interval."""
        seeds = np.unique(self.rows["seed"]).tolist()
        return {
            seed: effective_context.estimate(rows_lib.select(self.rows, seed=seed), resamples=50)
            for seed in seeds
        }

    @functools.cached_property
    def value(self) -> float:
        """The summary number of this kind (`evals.kinds`), of retrieval as in `estimate`."""
        if self.kind == "retrieval":
            return self.estimate.mean_accuracy  # seeds may have unequal numbers of documents
        return self.kind_info.value(self.rows)

    @property
    def numbers(self) -> dict[str, float]:
        """All measures of the likelihood of text, or `value` as `score`."""
        if self.kind == "likelihood":
            return summaries.likelihoods(self.rows)
        return {"score": self.value}

    @property
    def text(self) -> str:
        """`value` as text; effective context for retrieval tasks."""
        if self.kind == "retrieval":
            return str(self.estimate)
        return NONE if math.isnan(self.value) else f"{self.value:.{self.kind_info.decimals}f}"

    @property
    def task_columns(self) -> Mapping[str, float | str]:
        """Columns specific to this task (`TaskView.columns`)."""
        return view_of(self.task).columns(self.rows, self.trained)


def drop_diverged(run: RunDirectory, rows: Rows) -> Rows:
    """Return the rows of checkpoints saved before the run diverged."""
    if run.diverged_at is None:
        return rows
    return rows_lib.where(rows, rows["step"] < run.diverged_at)


def measurements(rows: Rows, config: ExperimentConfig) -> list[Measurement]:
    """Return measurements by task and variant (in order of appearance) and ascending length.

    Each task and variant is represented by its last checkpoint; seeds without it are left out.
    """
    results = []
    for task in dict.fromkeys(rows["task"].tolist()):
        task_rows = rows_lib.select(rows, task=task)
        for rotary in dict.fromkeys(task_rows["rotary"].tolist()):
            latest = rows_lib.select(task_rows, rotary=rotary)
            latest = rows_lib.select(latest, step=latest["step"].max())
            for length in np.unique(latest["length"]).tolist():
                selected = rows_lib.select(latest, length=length)
                results.append(Measurement(config, task, length, rotary, selected))
    trained = {(m.task, m.length): m.rows for m in results if m.variant == TRAINED}
    return [dataclasses.replace(m, trained=trained.get((m.task, m.length))) for m in results]
