"""Su's table: share of next tokens that are right, at the trained length and beyond it.

    repeated                at the trained length   what training gave
    repeated(lag=trained)   at a longer length      the first T tokens of a text, again and again
    repeated(lag=half)      at a longer length      its first T/2 tokens, again and again
    repeated                at a longer length      the text as it is

with T the trained length (Su Jianlin, kexue.fm/archives/9706; he does not state the lag). Right
beyond T in the text as it is: the schedule extrapolates. Better still where it is repeated: the
model also copies from `lag` tokens back, which a table of perplexities cannot show.
"""

import dataclasses
from typing import Literal

import numpy as np

import evals
from data.tokenizer import Tokenizer
from evals import text
from evals.estimate import summaries
from evals.estimate.summaries import MeanWithError
from evals.rows import Rows, select
from evals.task import Document, Task
from experiment.config import ExperimentConfig

COLUMNS = {"trained": "repeated, lag T", "half": "repeated, lag T/2", "none": "not repeated"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Repeated(Task):
    """See the module. Answers are single tokens.

    A document asks at `tokens` positions, one at a random place of each of as many equal parts of
    the length: a sample of all its tokens, the same places and the same crops for every lag and
    every run. `distance` is the lag, 0 where nothing was said before: in text that is not
    repeated, and in its first copy.

    Attributes:
      lag: "none", "trained" (the trained length) or "half" (half of it).
      tokens: answers a document.
    """

    kind = "accuracy"

    lag: Literal["none", "trained", "half"] = "none"
    tokens: int = 64

    def __post_init__(self):
        if self.lag not in ("none", "trained", "half"):
            raise ValueError(f"lag must be none, trained or half, got {self.lag!r}")
        if self.tokens < 1:
            raise ValueError(f"tokens must be at least 1, got {self.tokens}")

    def documents(
        self,
        config: ExperimentConfig,
        tokenizer: Tokenizer,
        length: int,
        numbers: range,
        distances: tuple[int, int] | None = None,
    ) -> list[Document]:
        """See `Task.documents`."""
        if length < self.tokens:
            raise ValueError(
                f"repeated(tokens={self.tokens}) does not fit length={length}; ask for --lengths "
                f"{self.tokens} or more, or write repeated(tokens={length})"
            )
        trained = config.data.context_length
        lag = {"none": length, "trained": trained, "half": trained // 2}[self.lag]
        if self.lag != "none" and length <= lag:
            raise ValueError(
                f"repeated(lag={self.lag}) at length {length} repeats nothing: the lag is {lag} "
                f"tokens; ask for --lengths {2 * lag} or more"
            )
        # Where each id comes from: BOS, then 1 ... lag, and again 1 ... lag.
        source = np.append(0, np.arange(length) % lag + 1)
        found = []
        for number, tokens, _ in text.crops(config, tokenizer, length, numbers, task="repeated"):
            places = self._places(length, number, config.evals.seed)
            distance = np.where(places > lag, lag, 0)
            answers = np.stack([places, np.ones_like(places), distance], axis=1).astype(np.int32)
            found.append(Document(tokens=tokens[source], answers=answers, number=number))
        return found

    def _places(self, length: int, number: int, seed: int) -> np.ndarray:
        """Indices into BOS and `length` ids, ascending, none of them BOS."""
        random = np.random.Generator(np.random.Philox(key=[seed, number]))
        parts = np.arange(self.tokens + 1) * length // self.tokens
        return random.integers(parts[:-1], parts[1:]) + 1

    def chance(self, tokenizer: Tokenizer) -> float:
        """See `Task.chance`."""
        return 0.0


def su_table(rows: Rows, length: int) -> dict[str, dict[str, MeanWithError]]:
    """Su's columns by schedule evaluated with, from the rows of one run.

    Args:
      rows: those of other tasks and lengths are not looked at.
      length: of the columns beyond the trained length, tokens.

    Returns:
      Of each schedule the share of right tokens, its error over documents, for those of the
      columns "trained", "repeated, lag T", "repeated, lag T/2" and "not repeated" that were
      evaluated. All tokens count, those of the first copy too. `summaries.difference` of two
      schedules' rows, `column="first_token_correct"`, is paired.
    """
    table: dict[str, dict[str, MeanWithError]] = {}
    for task in dict.fromkeys(rows["task"].tolist()):
        parsed = evals.parse(task)
        if not isinstance(parsed, Repeated):
            continue
        of_task = select(rows, task=task)
        for rotary in dict.fromkeys(of_task["rotary"].tolist()):
            of_rotary = select(of_task, rotary=rotary)
            columns = {COLUMNS[parsed.lag]: select(of_rotary, length=length)}
            if parsed.lag == "none":
                trained = of_rotary["trained_length"][0]
                columns["trained"] = select(of_rotary, length=trained)
            for name, chosen in columns.items():
                if len(chosen["task"]):
                    table.setdefault(rotary, {})[name] = summaries.share(chosen)
    return table
