"""The gain from an earlier copy of a text, by lag."""

from typing import NamedTuple

import numpy as np

from ropewalk import evals
from ropewalk.evals.estimate.bins import BIN_STARTS
from ropewalk.evals.estimate.statistics import clustered_mean
from ropewalk.evals.rows import Rows
from ropewalk.evals.tasks import lagcopy
from ropewalk.reporting.task_view import Curve, Plot, TaskView


class Lagcopy(TaskView):
    """View of `evals.tasks.lagcopy`; only natural text and its control have a figure."""

    order = 1
    plot = Plot(
        name="copy_gain",
        alternative="Gain in nats and in accuracy from an earlier copy, against its lag.",
        caption="Repeated held-out text, compared with the same text after another text "
        "(Forgetting Curve, arXiv 2410.04727), by half octaves of lag, with 95% intervals over "
        "documents. The gain excludes what the model guesses or knows. Above: nats; below: share "
        "of right tokens. Dashed: theory length of the member of that color, if it is "
        "below the context length.",
        xlabel="lag: tokens from the first copy to the second (log scale)",
        ylabels=(
            "nats per token less than\nwithout the first copy",
            "share of right tokens\nabove that without it",
        ),
        levels="no gain",
        theory=True,
        together=True,
    )

    def curves(self, trained: Rows, rows: Rows) -> list[Curve]:
        """Return the gain in nats and in accuracy from the first copy, by lag."""
        gain = copy_gain(trained)
        if not len(gain.lag):
            return []
        return [
            Curve.from_means(gain.lag, mean, error, num_units=gain.documents)
            for mean, error in ((gain.nats, gain.nats_error), (gain.accuracy, gain.accuracy_error))
        ]


class CopyGain(NamedTuple):
    """Gain of the second copy from the first, one entry for each half-octave of lag.

    Attributes:
      lag: float, geometric mean of the lags, tokens.
      nats: float, nats per token without the first copy minus those with it.
      accuracy: float, share of right tokens with the first copy minus that without it.
      nats_error, accuracy_error: float, standard errors over documents; NaN for one document.
      documents: float, number of documents, which all runs in the rows share.
    """

    lag: np.ndarray
    nats: np.ndarray
    accuracy: np.ndarray
    nats_error: np.ndarray
    accuracy_error: np.ndarray
    documents: np.ndarray


_PAIRED_BY = ("run", "seed", "step", "rotary", "length", "document", "query")


def copy_gain(rows: Rows) -> CopyGain:
    """Return the gain from copying by lag: rows of `text=natural` against `text=control`.

    The mean over the answers of one lag is the document's gain at this lag; the gain of a bin is
    the mean over its documents. Answers without a counterpart are left out.
    """
    natural, control = _by_answer(rows, "natural"), _by_answer(rows, "control")
    pairs: dict[tuple, list[tuple[int, int]]] = {}  # row indices, by document and lag
    for (*document, query), index in natural.items():
        if (*document, query) in control:
            at_lag = (*document, rows["distance"][index])
            pairs.setdefault(at_lag, []).append((index, control[*document, query]))
    right = rows["exact_match"].astype(float)
    lags, documents, gains = [], [], []
    for (*_, document, lag), indices in pairs.items():
        first, second = np.array(indices).T
        lags.append(lag + 1)
        documents.append(document)
        nats = np.mean(rows["nll"][second] - rows["nll"][first])
        gains.append((nats, np.mean(right[first] - right[second])))
    lags, documents, gains = np.array(lags), np.array(documents), np.array(gains).reshape(-1, 2)

    bins = np.searchsorted(BIN_STARTS, lags, side="right")
    columns = []
    for number in np.unique(bins).tolist():
        part = bins == number
        _, unit = np.unique(documents[part], return_inverse=True)
        means = [clustered_mean(values, np.ones(part.sum()), unit) for values in gains[part].T]
        mean, error, num_documents = zip(*means, strict=True)
        lag = np.exp(np.log(lags[part]).mean())
        columns.append((lag, *mean, *error, num_documents[0]))
    return CopyGain(*np.array(columns).reshape(-1, len(CopyGain._fields)).T)


def _by_answer(rows: Rows, name: str) -> dict[tuple, int]:
    """Index rows of `lagcopy` with this text by the columns that pair natural and control."""
    tasks = map(evals.parse, rows["task"].tolist())
    common = zip(tasks, *(rows[column].tolist() for column in _PAIRED_BY), strict=True)
    return {
        (task.lag, task.passage, task.crops, *key): index
        for index, (task, *key) in enumerate(common)
        if isinstance(task, lagcopy.Lagcopy) and task.text == name
    }
