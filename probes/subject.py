"""A run under analysis: its captured questions, which all probes share, and its L50."""

import dataclasses
import functools
import math
from collections.abc import Sequence

import jax
import numpy as np

from ropewalk import evals
from ropewalk.data.task import Document
from ropewalk.evals import runner
from ropewalk.evals.estimate import effective_context
from ropewalk.evals.rows import Rows
from ropewalk.evals.runner import Loaded
from ropewalk.evals.score import AnswerScores, Candidate, score
from ropewalk.experiment.loaded import LoadedRun
from ropewalk.model import transformer
from ropewalk.probes.inside import Capture, bytes_per_document
from ropewalk.probes.questions import Questions, capture_recall, grade_answers

# Default number of documents: at most _DOCUMENTS, and as many as fit _MEMORY.
_MEMORY = 2**30  # bytes of queries, keys, values and residual streams
_DOCUMENTS = 256


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Subject:
    """One run at one checkpoint.

    Attributes:
      run: the result of `experiment.load`.
      task: the task whose documents are captured (`questions.capture_recall`).
      length: tokens of a row; None: the trained context.
      documents: number of captured documents; None: 256, or as many as fit one GiB.
      eval_documents: number of documents that effective context is measured on; None: as many as
        the run's own evaluation has.
    """

    run: LoadedRun
    task: str = "kv"
    length: int | None = None
    documents: int | None = None
    eval_documents: int | None = None

    @property
    def capture(self) -> Capture:
        """Captured documents of the task."""
        return self._recall[0]

    @property
    def questions(self) -> Questions:
        """Positions of the questions of these documents."""
        return self._recall[1]

    @functools.cached_property
    def _recall(self) -> tuple[Capture, Questions]:
        documents = self.documents
        if documents is None:
            size = bytes_per_document(self.run.config.model, self._length)
            documents = max(1, min(_DOCUMENTS, _MEMORY // size))
        return capture_recall(self.run, task=self.task, documents=documents, length=self.length)

    @functools.cached_property
    def is_right(self) -> np.ndarray:
        """Which of these questions the model answers correctly, bool `[Q]`."""
        return grade_answers(self.capture, self.questions)

    @functools.cached_property
    def l50(self) -> tuple[float, float, float]:
        """Effective context of the unchanged model, and its 95% interval, tokens.

        NaN without an effective context, inf if L50 lies beyond the longest distance tested.
        """
        (rows,) = self.rows([self.candidate()])
        estimate = effective_context.estimate(rows)
        if not estimate.has_l50:
            return math.nan, math.nan, math.nan
        return math.inf if estimate.is_beyond else estimate.l50, estimate.ci_low, estimate.ci_high

    def rows(self, candidates: Sequence[Candidate]) -> list[Rows]:
        """Return the result rows (`evals.rows`) of changed models on the run's own documents.

        Raises:
          ValueError: if the task has no effective context, or does not fit the length, or if its
            rows do not fit the memory.
        """
        network, documents = self.run.config.model.forward_architecture(), self._eval_documents
        scores = score(network, candidates, documents, self._length)
        questions = runner.Questions(evals.parse(self.task), self._length, documents)
        rotary = self.run.config.model.rotary
        return [
            runner.to_rows(self._loaded, rotary, questions, AnswerScores(*fields))
            for fields in zip(*scores, strict=True)
        ]

    def candidate(self) -> Candidate:
        """Return the unchanged model, as a base for changes."""
        return self._loaded.candidate(self.run.config.model.rotary)

    @property
    def _length(self) -> int:
        return self.length or self.run.config.data.context_length

    @functools.cached_property
    def _eval_documents(self) -> Sequence[Document]:
        config, task = self.run.config, evals.parse(self.task)
        if task.kind != "retrieval":
            raise ValueError(f"{self.task} has no effective context, as kv has: use other probes")
        context = evals.task_context(config, self.run.tokenizer, self._length)
        count = self.eval_documents or task.num_documents(context, config.evals.documents)
        return task.documents(context, range(count))

    @property
    def _loaded(self) -> Loaded:
        return Loaded.from_run(self.run)._replace(run=None)  # rows are not the run's own


def untrained(run: LoadedRun) -> LoadedRun:
    """Return the run before its first update, with parameters initialized from its seed again.

    A run with `start_from` did not start from these parameters.
    """
    config = run.directory.config
    # `init` does not read positions, so members of a sweep share the compiled program.
    params = _init(config.model.forward_architecture(), config.seed)
    return dataclasses.replace(run, step=0, config=run.directory.config_at(0), params=params)


_init = jax.jit(transformer.init, static_argnums=0)
