"""DataConfig: which documents, cut how."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from data import tasks
from settings.checks import Bounds, Share, check
from settings.places import check_place

# Longest row of training and of evaluation, tokens: float32 holds every position up to it exactly.
MAX_CONTEXT = 2**24


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataConfig:
    """What a run is trained on. Every row is a pure function of this and the row's number.

    Attributes:
      source: "local" (the Python standard library's own source: real text on any machine),
        "jsonl" (RedPajama-format .jsonl, .jsonl.gz or .jsonl.zst at `path`), "redpajama" (the
        TFDS builder, prepared under `path`) or "retrieval" (documents made on the spot only).
      path: file or folder of the source; not used by "local" and "retrieval".
      tokenizer: an existing SentencePiece .model or tokenizer.json; None trains one on the source.
      vocab_size: size of the tokenizer to train (ignored when `tokenizer` is given); 128 of its ids
        are reserved for the keys and values of retrieval documents.
      subset_shares: share in [0, 1] of a RedPajama subset's documents to keep, by name, e.g.
        (("github", 0.5),); those of subsets not named are all kept. Any published name of a subset
        will do (`data.sources.SUBSET_NAMES`).
      context_length: tokens of a training row.
      batch_size: rows of a step over all devices.
      retrieval_fraction: share of rows that are retrieval documents.
      retrieval_tasks: kinds of retrieval documents, drawn with equal weight: names of files in
        `data/tasks`, or a task of the user's own, `path/to/mine.py:Echo(n=2)`.
      documents: version of the documents made on the spot and of the split of `local`. 2: answers
        spread evenly over octaves of distance, as many at every length (see `data.tasks`). 1: as
        before there were versions, which is what a recorded config without this field means.
      seed: decides row order and retrieval documents; not the initialisation. An override of the
        experiment's seed (`seed=1`) sets this one too, unless it is given (`data.seed=0`).
      on_bad_document: "error" stops at the first broken document, naming file and line; "skip"
        leaves it out and reports it.
      prepared_root: where tokenized data is kept and found again.
      num_workers: processes that build rows; 0 builds them in threads of the trainer.
    """

    # What a recorded config means by leaving a field out, where that is not today's default.
    absent: ClassVar[Mapping[str, Any]] = {"documents": 1}

    source: Literal["local", "jsonl", "redpajama", "retrieval"] = "local"
    path: str | None = None
    tokenizer: str | None = None
    vocab_size: int = 1024
    subset_shares: tuple[tuple[str, Share], ...] = ()
    context_length: Annotated[int, Bounds(at_least=1, at_most=MAX_CONTEXT)]
    batch_size: Annotated[int, Bounds(at_least=1, at_most=2**24)]
    retrieval_fraction: Share = 0.0
    retrieval_tasks: tuple[str, ...] = ("kv", "lagcopy", "lines")
    documents: Literal[1, 2] = 2
    seed: int = 0
    on_bad_document: Literal["error", "skip"] = "error"
    prepared_root: str = "runs/data"
    num_workers: Annotated[int, Bounds(at_least=0, at_most=1024)] = 0

    def __post_init__(self):
        check(self)
        for path in filter(None, (self.path, self.tokenizer, self.prepared_root)):
            check_place(path)
        if self.source in ("jsonl", "redpajama") and self.path is None:
            raise ValueError(f"data.source={self.source} needs data.path=FILE_OR_FOLDER")
        if not self.retrieval_tasks:
            raise ValueError(f"retrieval_tasks must be some of {', '.join(tasks.names())}")
        for task in self.retrieval_tasks:
            tasks.check(task)
