"""PG-19's test books (Rae et al., arXiv 1911.05507), by sliding windows.

Perplexities of books are comparable between tokenizers only per word or per byte. Men et al. (arXiv
2405.14591, appendix B) report the mean over books of each book's perplexity.
"""

import dataclasses

import numpy as np

from ropewalk.data import pg19 as pg19_lib
from ropewalk.data.task import TaskContext
from ropewalk.evals import text
from ropewalk.utils.checks import Count


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pg19(text.WindowTask):
    """PG-19 by sliding windows; documents are books, in the order of their Gutenberg ids.

    Each window is one answer, as in `sliding_window`: every window has BOS, EOS is not scored.

    Attributes:
      path: folder of the books, in one of the layouts of `data.pg19`; None: the data folder of
        tensorflow-datasets.
      tokens: tokens to score at the start of each book; None: all.
      stride: tokens from one window to the next.
    """

    path: str | None = None
    tokens: Count | None = None
    stride: Count = 256

    def check_files(self) -> None:
        """Implement `Task.check_files`."""
        pg19_lib.test_books(self.path)

    def num_documents(self, context: TaskContext, documents: int) -> int:
        """Return the number of all books, as published perplexities are over all of them."""
        return max(documents, 100)

    def sources(self, context: TaskContext, numbers: range) -> list[tuple[int, np.ndarray]]:
        """Return the books, after BOS."""
        books = pg19_lib.test_books(self.path)
        stop = None if self.tokens is None else self.tokens + 1
        books_ids = []
        for number in range(numbers.start, min(numbers.stop, len(books))):
            ids = [context.tokenizer.bos_id, *context.tokenizer.encode(books[number].text)]
            books_ids.append((number, np.array(ids[:stop])))
        longest = max((len(ids) - 1 for _, ids in books_ids), default=0)
        if longest < context.length:
            raise text.too_short("pg19", context.length, longest, what="book")
        return books_ids
