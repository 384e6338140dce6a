"""A run under analysis: its captured questions, which all probes share, and changed models."""

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

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
from ropewalk.probes.capturing import Capture, bytes_per_document
from ropewalk.probes.questions import Questions, capture_recall, grade_answers
from ropewalk.probes.resample import bootstrap_mean

# Default number of documents: at most _DOCUMENTS, and as many as fit _MEMORY.
_MEMORY = 2**30  # bytes of queries, keys, values and residual streams
_DOCUMENTS = 256


class Effects(NamedTuple):
    """Effects of X changes of a model; `_3X` are a value and the ends of its 95% interval.

    Attributes:
      l50_3X: tokens, as `evals.estimate.effective_context` has it; NaN if nothing is
        learned, and beside an interval if it is undetermined.
      loss_3X: nats, mean over answers.
      l50_text_X: L50 as text.
    """

    l50_3X: np.ndarray
    loss_3X: np.ndarray
    l50_text_X: np.ndarray


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Subject:
    """One run at one checkpoint.

    Attributes:
      run: the result of `experiment.load`.
      task: the task whose documents are captured (`questions.capture_recall`).
      length: tokens of a row; None: the trained context.
      documents: number of captured documents; None: 256, or as many as fit one GiB.
    """

    run: LoadedRun
    task: str = "kv"
    length: int | None = None
    documents: int | None = None

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

    def rows(self, candidate: Candidate) -> Rows:
        """Return the result rows (`evals.rows`) of a changed model on the run's own documents.

        Raises:
          ValueError: if the task has no effective context, or does not fit the length, or if its
            rows do not fit the memory.
        """
        model, documents = self.run.config.model, self._eval_documents
        scores = score(model.forward_architecture(), [candidate], documents, self._length)
        questions = runner.Questions(evals.parse(self.task), self._length, documents)
        (fields,) = zip(*scores, strict=True)
        return runner.to_rows(self._loaded, model.rotary, questions, AnswerScores(*fields))

    def effects(self, candidates: Iterable[Candidate]) -> Effects:
        """Evaluate changed models on the same documents; errors as of `rows`."""
        # One by one: the parameters of all candidates together may not fit the memory.
        rows = [self.rows(candidate) for candidate in candidates]
        estimates = [effective_context.estimate(candidate_rows) for candidate_rows in rows]
        l50_X3 = np.array([[e.l50, e.ci_low, e.ci_high] for e in estimates])
        loss_X3 = np.array([_mean_loss(candidate_rows) for candidate_rows in rows])
        return Effects(l50_X3.T, loss_X3.T, np.array([str(e) for e in estimates]))

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
        return task.documents(context, range(task.num_documents(context, config.evals.documents)))

    @property
    def _loaded(self) -> Loaded:
        return Loaded.from_run(self.run)._replace(run=None)  # rows are not the run's own


def _mean_loss(rows: Rows) -> np.ndarray:
    _, document_Q = np.unique(rows["document"], return_inverse=True)
    return bootstrap_mean(np.bincount(document_Q, rows["nll"]), np.bincount(document_Q))


def untrained(run: LoadedRun) -> LoadedRun:
    """Return the run before its first update, with parameters initialized from its seed again.

    A run with `start_from` did not start from these parameters.
    """
    config = run.directory.config_at(0)
    # `init` does not read positions, so members of a sweep share the compiled program.
    params = _init(config.model.forward_architecture(), config.seed)
    return dataclasses.replace(run, step=0, config=config, params=params)


_init = jax.jit(transformer.init, static_argnums=0)
