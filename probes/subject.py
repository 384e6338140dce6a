"""A run that is looked at: its questions, captured once for all probes, and how far it sees."""

import dataclasses
import functools
import math
from collections.abc import Sequence

import jax
import numpy as np

import evals
from data.task import Document
from evals import runner
from evals.estimate import effective_context
from evals.estimate.effective_context import NOT_LEARNED, Estimate
from evals.rows import Rows
from evals.runner import Loaded
from evals.score import AnswerScores, Candidate, score
from experiment.loaded import LoadedRun
from model import transformer
from probes.inside import Capture, bytes_per_document
from probes.questions import Questions, answered, ask

# Of queries, keys, values and residual streams, where nobody says how many documents.
_MEMORY = 2**30  # bytes
_DOCUMENTS = 256


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Subject:
    """One run at one checkpoint.

    Attributes:
      run: as `experiment.load` gives it.
      length: tokens of a row; None: as trained.
      documents: of key-value recall that are captured; None: 256, or as many as a GiB holds.
      measured: documents that effective context is measured on; None: as the run's own evaluation.
      task: of the questions, "kv" with parameters if wished.
    """

    run: LoadedRun
    length: int | None = None
    documents: int | None = None
    measured: int | None = None
    task: str = "kv"

    @functools.cached_property
    def asked(self) -> tuple[Capture, Questions]:
        """Documents of key-value recall, captured, and where their answers stand."""
        documents = self.documents
        if documents is None:
            length = self.length or self.run.config.data.context_length
            each = bytes_per_document(self.run.config.model, length)
            documents = max(1, min(_DOCUMENTS, _MEMORY // each))
        return ask(self.run, task=self.task, documents=documents, length=self.length)

    @functools.cached_property
    def is_right(self) -> np.ndarray:
        """Which of these questions the model answers right, bool `[Q]`."""
        return answered(*self.asked)

    def effective_context(self, candidates: Sequence[Candidate]) -> list[Estimate]:
        """How far changed models see: of each candidate, on the run's own documents of the task.

        Raises:
          ValueError: where the task cannot be asked, or its rows do not fit the memory.
        """
        return [effective_context.estimate(rows) for rows in self.rows(candidates)]

    @functools.cached_property
    def l50(self) -> tuple[float, float, float]:
        """Effective context of the model as it is, and its 95% interval, tokens.

        NaN where the task is not learned, inf where no distance asked is beyond it.
        """
        (found,) = self.effective_context([self.candidate()])
        if found.verdict == NOT_LEARNED:
            return math.nan, math.nan, math.nan
        beyond = found.verdict.startswith(">")
        return math.inf if beyond else found.l50, found.ci_low, found.ci_high

    def rows(self, candidates: Sequence[Candidate]) -> list[Rows]:
        """Result rows (`evals.rows`) of each candidate; errors as of `effective_context`."""
        network, documents = runner.network(self.run.config.model), self._documents
        length = self.length or self.run.config.data.context_length
        scores = score(network, candidates, documents, length)
        asked = runner.Questions(evals.parse(self.task), length, documents)
        member, rotary = self._loaded, self.run.config.model.rotary
        return [
            runner.to_rows(member, rotary, asked, AnswerScores(*fields))
            for fields in zip(*scores, strict=True)
        ]

    def candidate(self) -> Candidate:
        """The model as it is, to be changed."""
        return self._loaded.candidate(self.run.config.model.rotary)

    @functools.cached_property
    def _documents(self) -> Sequence[Document]:
        config, task = self.run.config, evals.parse(self.task)
        length = self.length or config.data.context_length
        asked = evals.asked(config, self.run.tokenizer, length)
        count = self.measured or task.num_documents(asked, config.evals.documents)
        return task.documents(asked, range(count))

    @property
    def _loaded(self) -> Loaded:
        run = self.run
        name, rotary = run.directory.name, run.config.model.rotary
        return Loaded(name, run.config, run.tokenizer, run.params, run.step, (rotary,))


def untrained(run: LoadedRun) -> LoadedRun:
    """The run before its first update: its parameters are made again from the seed.

    Of a run that started from another these are others than it started from.
    """
    config = run.directory.config
    # Nothing of positions is read: members of a sweep share the program.
    params = _init(runner.network(config.model), config.seed)
    return dataclasses.replace(run, step=0, config=run.directory.config_at(0), params=params)


_init = jax.jit(transformer.init, static_argnums=0)
