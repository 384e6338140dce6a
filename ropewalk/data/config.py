"""DataConfig: the text, retrieval documents and batches of a run."""

import dataclasses
from typing import TYPE_CHECKING, Annotated, Literal

from ropewalk.data import sources, tasks
from ropewalk.utils.checks import Bounds, Count, Positive, Share, check
from ropewalk.utils.paths import check_path

if TYPE_CHECKING:
    SourceName = str
else:
    SourceName = Literal[tuple(sources.names())]
# Longest row of training and evaluation, tokens: float32 represents every position up to it.
MAX_CONTEXT = 2**24


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Data of a run. Every row is a pure function of this config and the number of the row.

    Attributes:
      source: a file in `data/sources`. "local": the source code of Python's standard library, on
        any machine. "files": all JSON lines, Parquet and plain text at `path`; "jsonl", "parquet"
        and "txt": those of one format. "redpajama": the published files at `path`. "retrieval":
        retrieval documents only.
      path: file or folder of the source; not used by "local" and "retrieval".
      text_field: field of a JSON line, or column of a Parquet file, that holds the text.
      tokenizer: an existing SentencePiece .model or tokenizer.json; None trains one on the source.
      vocab_size: size of the tokenizer to train (ignored if `tokenizer` is set); 128 of its ids
        are reserved for the keys and values of retrieval documents.
      subset_shares: share in [0, 1] of a RedPajama subset's documents to keep, by name, e.g.
        (("github", 0.5),); all documents of other subsets are kept. Every published name of a
        subset is accepted (`data.source.SUBSET_NAMES`).
      weights: relative shares of the rows of text by corpus, e.g. (("books", 2), ("code", 1));
        every corpus needs one. A corpus is a subset, or a folder of `path` (`data.domains`). Empty:
        each has its share of the text.
      long_fraction: share of the rows of text (with weights: of each corpus) from documents of at
        least `long_tokens` tokens, as in continued training for long contexts. None: their share
        of the text.
      long_tokens: tokens of a long document; None: `context_length`.
      context_length: tokens of a training row.
      batch_size: rows of a step over all devices.
      retrieval_fraction: share of rows that are retrieval documents.
      retrieval_tasks: kinds of retrieval documents, drawn with equal weight: names of files in
        `data/tasks`, or a task in a user's file, `path/to/mine.py:Echo(n=2)`.
      seed: decides row order and retrieval documents, not the initialization. An override of the
        experiment's seed (`seed=1`) sets this seed too, unless `data.seed` is also overridden.
      on_bad_document: "error" stops at the first bad document, naming file and line; "skip"
        leaves it out and reports it.
      prepared_root: folder of tokenized data.
      num_workers: processes that build rows; 0 builds them in threads of the trainer.
    """

    source: SourceName = "local"
    path: str | None = None
    text_field: str = "text"
    tokenizer: str | None = None
    vocab_size: int = 1024
    subset_shares: tuple[tuple[str, Share], ...] = ()
    weights: tuple[tuple[str, Positive], ...] = ()
    long_fraction: Share | None = None
    long_tokens: Count | None = None
    context_length: Annotated[int, Bounds(at_least=2, at_most=MAX_CONTEXT)]
    batch_size: Annotated[int, Bounds(at_least=1, at_most=2**24)]
    retrieval_fraction: Share = 0.0
    retrieval_tasks: tuple[str, ...] = ("kv", "lagcopy", "lines")
    seed: int = 0
    on_bad_document: Literal["error", "skip"] = "error"
    prepared_root: str = "runs/data"
    num_workers: Annotated[int, Bounds(at_least=0, at_most=1024)] = 0

    def __post_init__(self):
        check(self)
        for name in ("path", "tokenizer", "prepared_root"):
            path = getattr(self, name)
            if path == "":  # of a shell variable that is not set; Path("") is the current folder
                raise ValueError(
                    f"{name} must be a path, got ''; write one, or leave the field out"
                )
            check_path(path or ".")
        if not self.retrieval_tasks:
            raise ValueError(f"retrieval_tasks must be some of {', '.join(tasks.names())}")
        for task in self.retrieval_tasks:
            tasks.check(task)

    @property
    def has_text(self) -> bool:
        """Return whether rows of text exist; otherwise there are retrieval documents only."""
        return sources.source_class(self.source).has_text
