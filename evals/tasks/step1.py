"""Step 1: the loss of the first training rows before any update.

The immediate cost of a variant and a context length is a cheap criterion for the base of continued
training: Gradient compares bases by the perplexity of the first batch (gradient.ai, "Scaling
rotational embeddings for long-context language models"). Rows are the first packed rows of training
on this data at this length, so the mean is the loss that training would report. A lower first loss
does not imply a longer effective context.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from data.figures import Curve, Mark, Plot, Suggestion
from data.sources import source_class
from data.store import TokenStore
from data.task import Document, Results, Sample, Task, TaskContext
from evals import text
from evals.estimate import summaries
from evals.rows import select

CHUNK = 256  # tokens of an answer at most
TOKENS = 2**18  # of training rows by default: losses paired by token tell 0.001 nats apart


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step1(Task):
    """First loss; document number r is row r of training (`data.pipeline.make_batches`).

    An answer is a chunk of up to 256 neighboring targets of the loss. Its `distance` is the number
    of tokens of its document before it in the row.
    """

    kind = "likelihood"
    of_training = True
    compared = False  # the first training rows are others at another length
    plot = Plot(
        name="step1",
        section="Before the first update",
        alternative="First loss against candidate base, for every member.",
        caption="Nats per token of the first training rows above those under the trained variant, "
        "before any update, paired by token; 95% intervals. The scale is linear below 0.01. The "
        "base with the lowest first loss need not be the best base for continued training.",
        xlabel="candidate base (log scale)",
        ylabels=("first loss above that of\nthe trained variant (nats per token)",),
        x_scale="log",
        y_scale="symlog",
        mark="trained variant",
        levels="no change",
        bars=True,
    )

    def check(self, context: TaskContext) -> None:
        """Accept any length, because rows are packed."""

    def num_documents(self, context: TaskContext, documents: int) -> int:
        """Return the number of rows with `TOKENS` tokens in all, whatever the config says."""
        return -(-TOKENS // context.length)

    def sources(
        self, context: TaskContext, numbers: range
    ) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
        """Yield the first rows of training."""
        from data.mixture import mixture  # it brings grain and jax, which --help does without

        data = dataclasses.replace(context.data, context_length=context.length)
        prepared = text.prepared(context, task="step1")
        has_text = source_class(data.source).has_text
        store = TokenStore(prepared / "train") if has_text else None
        if store and store.num_tokens <= context.length:
            longest = store.num_tokens - 1
            raise text.too_short("step1", context.length, longest, what="stretch of training")
        rows = mixture(data, store, context.tokenizer)
        for number in numbers:
            row: Any = rows[number]
            yield number, row

    def document(self, context: TaskContext, sample: Sample) -> Document:
        """Make a packed row with answers at the targets of the loss."""
        row = sample.source
        tokens = np.append(row["tokens"], row["targets"][-1])
        answers = chunks(row["loss_mask"], row["positions"], CHUNK)
        document = Document.from_lists(tokens, answers, segment_ids=row["segment_ids"])
        return text.sized(document, text.sizes(context.tokenizer, tokens))

    def columns(self, results: Results, trained: Results | None) -> dict[str, float]:
        """Return nats per token above the trained variant, and their standard error."""
        if trained is None:
            return {}
        change = first_loss(results, trained)
        return {"first_loss": change.mean, "first_loss_error": change.standard_error}

    def curves(self, trained: Results, results: Results) -> list[Curve]:
        """Return the first loss by candidate base; results.csv has the other variants."""
        changes = {
            float(np.max(rows["base"])): first_loss(rows, trained)
            for rotary in np.unique(results["rotary"]).tolist()
            for rows in [select(results, rotary=rotary)]
            if rotary.startswith("rope(") and not np.isnan(rows["base"]).any()
        }
        if not changes or not len(trained["task"]):
            return []
        bases = sorted(changes)
        mean, error, _ = np.array([changes[base] for base in bases]).T
        mark = None
        if str(trained["rotary"][0]).startswith("rope("):
            mark = Mark(float(trained["base"][0]), 0.0, "the variant it was trained with")
        return [Curve.from_means(bases, mean, error, mark)]

    @classmethod
    def suggestion(cls, length: int) -> Suggestion:
        """Return first losses for bases from 100 to a million."""
        what = "The first loss under other bases, before any update."
        call = ["--step1", "base=1e2,1e3,1e4,1e5,1e6", "--lengths", 2 * length]
        return Suggestion(what, "step1", [call])


def chunks(loss_mask_T: np.ndarray, positions_T: np.ndarray, size: int) -> np.ndarray:
    """Cut the targets of the loss into answers of up to `size` ids, int32 `[Q, 3]`."""
    edges = np.flatnonzero(np.diff(loss_mask_T > 0, prepend=False, append=False)).reshape(-1, 2)
    answers = [
        (begin + 1, min(size, end - begin), positions_T[begin] + 1)
        for start, end in edges.tolist()
        for begin in range(start, end, size)
    ]
    return np.array(answers, np.int32).reshape(-1, 3)


def first_loss(results: Results, trained: Results) -> summaries.MeanWithError:
    """Return the first loss under one variant minus that of the trained one, nats per token.

    Losses are paired by chunk within each seed, then averaged over seeds. The standard error treats
    chunks as independent, because there are too few rows to be the unit.
    """
    pairs = []
    for seed in np.unique(trained["seed"]).tolist():
        seed_rows = [select(part, seed=seed) for part in (results, trained)]
        # An earlier evaluation may have had fewer rows.
        both = np.intersect1d(seed_rows[0]["document"], seed_rows[1]["document"])
        seed_rows = [
            {name: column[np.isin(part["document"], both)] for name, column in part.items()}
            for part in seed_rows
        ]
        if len(both):
            pairs.append(summaries.difference(*seed_rows, unit=("document", "query")))
    error = np.sqrt(sum(pair.standard_error**2 for pair in pairs)) / max(len(pairs), 1)
    mean = np.mean([pair.mean for pair in pairs]) if pairs else np.nan
    return summaries.MeanWithError(float(mean), float(error), sum(pair.num_units for pair in pairs))
