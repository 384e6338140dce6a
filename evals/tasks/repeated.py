"""Su's table: share of right next tokens, at the trained length and beyond it.

    repeated                at the trained length   the reference
    repeated(lag=trained)   at a longer length      the first T tokens of a text, again and again
    repeated(lag=half)      at a longer length      its first T/2 tokens, again and again
    repeated                at a longer length      the text as it is

with T the trained length (Su Jianlin, kexue.fm/archives/9706; he does not state the lag). A variant
extrapolates if its share stays high beyond T in the text as it is. If it is higher still in
repeated text, the model also copies from `lag` tokens back, which perplexities cannot show.
"""

import dataclasses
from typing import Literal

import numpy as np

import evals
from data.figures import Shares, Suggestion
from data.task import Document, Results, Sample, TaskContext
from evals.estimate import summaries
from evals.rows import select
from evals.text import CropTask
from utils.checks import Count

COLUMNS = {"trained": "repeated, lag T", "half": "repeated, lag T/2", "none": "not repeated"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Repeated(CropTask):
    """Su's table; see the module. Answers are single tokens.

    A document has answers at `tokens` positions, one at a random position of each of `tokens` equal
    parts of the length. Positions and crops are the same for every lag and run. `distance` is the
    lag; it is 0 in text without repetition and in the first copy.

    Attributes:
      lag: "none", "trained" (the trained length) or "half" (half of the trained length).
      tokens: answers per document.
    """

    kind = "accuracy"

    shares = Shares(
        section="Tokens guessed right",
        caption="Percentage of next tokens that are the most likely token, ± 1.96 standard errors "
        "over documents: at the trained length T; beyond it, in the first T (T/2) tokens repeated; "
        "and beyond it, in the text as it is (Su Jianlin, kexue.fm/archives/9706).",
        heads=("trained length", *COLUMNS.values()),
    )

    lag: Literal["none", "trained", "half"] = "none"
    tokens: Count = 64

    def least_length(self, context: TaskContext) -> int:
        """Return one token for each answer, and at least one repeated token."""
        return max(self.tokens, 0 if self.lag == "none" else self._lag(context) + 1)

    def _lag(self, context: TaskContext) -> int:
        trained = context.data.context_length
        return {"none": context.length, "trained": trained, "half": trained // 2}[self.lag]

    def document(self, context: TaskContext, sample: Sample) -> Document:
        """Make the start of a crop, repeated to fill the length."""
        lag = self._lag(context)
        # Source index of each id: BOS, then 1 ... lag, and again 1 ... lag.
        source = np.append(0, np.arange(context.length) % lag + 1)
        places = self._places(context.length, sample.number, context.seed)
        distance = np.where(places > lag, lag, 0)
        answers = np.stack([places, np.ones_like(places), distance], axis=1)
        return Document.from_lists(sample.source.tokens[source], answers)

    def _places(self, length: int, number: int, seed: int) -> np.ndarray:
        """Draw ascending indices into BOS and `length` ids; BOS is never drawn."""
        random = np.random.Generator(np.random.Philox(key=[seed, number]))
        parts = np.arange(self.tokens + 1) * length // self.tokens
        return random.integers(parts[:-1], parts[1:]) + 1

    def share_columns(
        self, results: Results, length: int
    ) -> dict[str, dict[str, summaries.MeanWithError]]:
        """Return Su's evaluated columns at a length beyond the trained length.

        All tokens count, including those of the first copy. For a paired difference of two
        variants use `summaries.difference` with `column="first_token_correct"`.
        """
        table: dict[str, dict[str, summaries.MeanWithError]] = {}
        trained = max(results["trained_length"], default=0)
        if length <= trained:
            return table
        for task in dict.fromkeys(results["task"].tolist()):
            repeated = evals.parse(task)
            if not isinstance(repeated, Repeated):
                continue
            lag = repeated.lag
            of_task = select(results, task=task)
            for rotary in dict.fromkeys(of_task["rotary"].tolist()):
                of_rotary = select(of_task, rotary=rotary)
                columns = {COLUMNS[lag]: select(of_rotary, length=length)}
                if lag == "none":
                    columns["trained length"] = select(of_rotary, length=trained)
                for name, chosen in columns.items():
                    if len(chosen["task"]):
                        table.setdefault(rotary, {})[name] = summaries.share(chosen)
        return table

    @classmethod
    def suggestion(cls, length: int) -> Suggestion:
        """Return all lags, at the trained length and four times that length."""
        lags = "repeated,repeated(lag=trained),repeated(lag=half)"
        within = ["--tasks", "repeated", "--lengths", length]
        beyond = ["--tasks", lags, "--lengths", 4 * length]
        what = "Tokens guessed right in repeated text."
        return Suggestion(what, "Tokens guessed right", [within, beyond])
