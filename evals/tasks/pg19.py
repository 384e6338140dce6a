"""PG-19's test books (Rae et al., arXiv 1911.05507), by sliding windows.

Perplexities of books are comparable between tokenizers only by the word or by the byte; the mean
over books of each book's perplexity is what Men et al. (arXiv 2405.14591, appendix B) report.
"""

import dataclasses

import numpy as np

from data import pg19 as pg19_lib
from data.tokenizer import Tokenizer
from evals import text
from evals.estimate import summaries
from evals.rows import Rows, select
from evals.task import Document, Task
from evals.tasks.sliding_window import check_positive, check_window, windows
from experiment.config import ExperimentConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pg19(Task):
    """See the module. Documents are books, numbered in the order of their Gutenberg ids.

    One answer a window, as in `sliding_window`: BOS in every window, EOS is not scored.

    Attributes:
      path: of the books, in one of the layouts of `data.pg19`; None: where tensorflow-datasets
        keeps its data.
      tokens: of each book, from its start, that are scored; None: all.
      stride: tokens from one window to the next.
    """

    kind = "likelihood"

    path: str | None = None
    tokens: int | None = None
    stride: int = 256

    def __post_init__(self):
        check_positive(self, "stride", "tokens")

    def documents(
        self,
        config: ExperimentConfig,
        tokenizer: Tokenizer,
        length: int,
        numbers: range,
        distances: tuple[int, int] | None = None,
    ) -> list[Document]:
        """See `Task.documents`."""
        check_window("pg19", length, self.stride, self.tokens)
        books = pg19_lib.test_books(self.path)
        stop = None if self.tokens is None else self.tokens + 1
        found, longest = [], 0
        for number in numbers[: len(books)]:
            ids = np.array([tokenizer.bos_id, *tokenizer.encode(books[number].text)][:stop])
            found += windows(ids, text.sizes(tokenizer, ids), number, length, self.stride)
            longest = max(longest, len(ids) - 1)
        if longest < length:
            raise ValueError(
                f"pg19 at length {length} needs longer books: the longest has {longest} tokens; "
                f"ask for --lengths {longest} or less"
            )
        return found

    def chance(self, tokenizer: Tokenizer) -> float:
        """See `Task.chance`."""
        return 0.0


def book_perplexities(rows: Rows) -> dict[int, float]:
    """Perplexity of each book, by its number; within a book every token counts the same."""
    numbers = np.unique(rows["document"]).tolist()
    return {n: summaries.perplexity(select(rows, document=n)) for n in numbers}


def mean_book_perplexity(rows: Rows) -> float:
    """Mean over books of each book's perplexity: a few hard books weigh much."""
    return float(np.mean(list(book_perplexities(rows).values())))
