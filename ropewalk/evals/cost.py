"""Host memory of an evaluation's documents and result rows, before they are generated.

Device memory is that of XLA's analysis of the compiled program (`evals.score.check_fits`).
"""

from collections.abc import Sequence

from ropewalk.data.task import Document, Task, TaskContext
from ropewalk.experiment.devices import free_host_memory
from ropewalk.utils.messages import size

# Bytes of a result row: at its peak, while the run's file is written, and until the end.
_ROW_WRITTEN, _ROW_KEPT = 3 * 2**10, 2**10
_OBJECT = 2**10  # bytes of a document without its arrays
_ROWS = 2**14  # assumed bytes of a document's result rows, before one is generated
_SMALL = 2**28  # documents of fewer bytes are generated without an estimate


class DoesNotFitError(ValueError):
    """A length, or its documents, exceeds the memory."""


def answer_bytes(num_variants: Sequence[int]) -> int:
    """Estimate the host memory of the result rows of one answer.

    Args:
      num_variants: rotary variants of each member, which all give a row.
    """
    return max(num_variants) * _ROW_WRITTEN + sum(num_variants) * _ROW_KEPT


def host_bytes(documents: Sequence[Document], answer_bytes: int) -> int:
    """Estimate the host memory of documents and of their result rows."""
    return sum(
        d.tokens.nbytes + d.answers.nbytes + _OBJECT + len(d.answers) * answer_bytes
        for d in documents
    )


def check_host(needed: float, what: str) -> None:
    """Raise DoesNotFitError if `needed` bytes for `what` are not free on this host."""
    free = free_host_memory()
    if needed > free:
        raise DoesNotFitError(
            f"{what} do not fit: with their result rows they need about {size(needed)} and "
            f"{size(free)} are free; ask for fewer --documents or shorter --lengths"
        )


def check_documents(task: Task, context: TaskContext, count: int, answer_bytes: int) -> None:
    """Reject documents that do not fit the host; the first document predicts the memory of all.

    Raises:
      DoesNotFitError: before all documents are generated.
    """
    if count * (4 * context.length + _ROWS) < _SMALL:
        return
    try:
        first = task.documents(context, range(1))
        has_all = any(True for _ in task.sources(context, range(count - 1, count)))
    except ValueError:  # reported when all documents are generated
        return
    if has_all:  # else the text has fewer documents, and it fits the disk
        what = f"{count:,} documents of {task.expression} at length {context.length}"
        check_host(count * host_bytes(first, answer_bytes), what)
