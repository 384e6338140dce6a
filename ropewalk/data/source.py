"""Base class of data sources, and the documents and files that they have.

A source is one file in `data/sources` with one subclass of `Source`; the name of the file is the
value of `data.source`. The modules of that folder import slow libraries inside functions.
"""

import abc
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

from ropewalk.utils.messages import nearest, quoted
from ropewalk.utils.plugins import name_of

SUBSETS = ("arxiv", "book", "c4", "common_crawl", "github", "stackexchange", "wikipedia")
# The names that RedPajama's files, its dataset card and SlimPajama use for these subsets.
SUBSET_NAMES = {name: name for name in SUBSETS} | {
    "books": "book",
    "cc": "common_crawl",
    "RedPajamaArXiv": "arxiv",
    "RedPajamaBook": "book",
    "RedPajamaC4": "c4",
    "RedPajamaCommonCrawl": "common_crawl",
    "RedPajamaGithub": "github",
    "RedPajamaStackExchange": "stackexchange",
    "RedPajamaWikipedia": "wikipedia",
}


def subset_name(name: str | None) -> str:
    """Return our name of a subset; a label of another corpus stays as it is, and None is ""."""
    return SUBSET_NAMES.get(name or "", name or "")


def by_corpus(numbers: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Return numbers such as `data.weights` by our names of subsets, or by labels."""
    return {subset_name(name): number for name, number in numbers}


SKIP_ADVICE = (
    "data.on_bad_document=skip (data.prepare: --on-bad-document skip) leaves such documents out"
)
LISTED = 100  # skipped documents whose problems are listed; the others are only counted


class Document(NamedTuple):
    """One document, or the problem with it.

    Attributes:
      text: never empty, always valid Unicode; "" if there is a problem.
      file: index into the list of input files.
      line: line of the file, from 1.
      subset: RedPajama's name for the kind of text, if the document has one.
      problem: the reason why the document cannot be used; None for a good document.
      damaged_bytes: bytes of the file that are left out with the problem, with unknown documents; 0
        if the problem is one document.
      held_out: whether the document is for validation; None: the name of its file decides, or else
        a hash of the text.
      digest: of the text, in hex; `data.tokenizing` computes it.
    """

    text: str
    file: int
    line: int
    subset: str | None = None
    problem: str | None = None
    damaged_bytes: int = 0
    held_out: bool | None = None
    digest: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class InputFile:
    """A file of documents.

    Attributes:
      path: location of the file.
      name: path relative to the folder of the source.
      size: bytes on disk.
      validation: whether the name marks a validation file.
      sha256: of the content, in hex, if the source knows it; else the file is read.
    """

    path: Path
    name: str
    size: int
    validation: bool = False
    sha256: str = ""


class LeftOut(NamedTuple):
    """A file or folder that is not read.

    Attributes:
      name: relative to the folder of the source; that of a folder ends in "/".
      reason: why.
    """

    name: str
    reason: str


OnBytes = Callable[[int], None]


def ignore_bytes(count: int) -> None:
    """Do nothing: the default callback for progress in bytes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source(abc.ABC):
    """Documents in a fixed order. Creating a source reads nothing.

    The first line of a subclass's docstring is its text in `ropewalk prepare --help`.

    Attributes:
      path, text_field, subset_shares, on_bad_document, prepared_root: fields of
        `data.config.DataConfig`.
      ends: n: the last 1/n of each document is held out, of none if it is 0; None: a tenth of each
        of few plain texts.
      needs_path: whether the source reads `path`; `data.path` is refused otherwise.
      has_fields: whether a document has fields, and `text_field` names that of the text.
      has_text: whether rows of text exist; without it, only a tokenizer is prepared.
      differs_by_machine: whether another machine may have other text. A run then keeps its
        held-out documents.
      held_out_every: n: one of n documents is held out if no file is a validation file.
    """

    needs_path: ClassVar[bool] = False
    has_fields: ClassVar[bool] = False
    has_text: ClassVar[bool] = True
    differs_by_machine: ClassVar[bool] = False
    held_out_every: ClassVar[int] = 100

    path: str | None = None
    text_field: str = "text"
    subset_shares: tuple[tuple[str, float], ...] = ()
    on_bad_document: Literal["error", "skip"] = "error"
    prepared_root: str = ""
    ends: int | None = None

    @property
    @abc.abstractmethod
    def files(self) -> list[InputFile]:
        """Files (or splits) in the order of their documents; ValueError if there are none."""

    @property
    def inputs(self) -> list[InputFile]:
        """Files whose content decides the documents: `files`, unless they are made from others."""
        return self.files

    @property
    def has_whole_files(self) -> bool:
        """Return whether some files are one document each; a tokenizer is trained on all of it."""
        return False

    @property
    def left_out(self) -> list[LeftOut]:
        """Files at `path` that are not read."""
        return []

    @abc.abstractmethod
    def read_file(self, file: int, line: int, on_bytes: OnBytes) -> Iterator[Document]:
        """Yield the documents of one of `files` from a line (from 1) on.

        Args:
          file: index of the file.
          line: line of the first document.
          on_bytes: called with the number of bytes read from disk.
        """

    def read(
        self, *, start: tuple[int, int] = (0, 1), on_bytes: OnBytes = ignore_bytes
    ) -> Iterator[Document]:
        """Yield all documents from a file index and line on."""
        for file in range(start[0], len(self.files)):
            yield from self.read_file(file, start[1] if file == start[0] else 1, on_bytes)

    def holds_out_ends(self, file: int) -> bool:
        """Return whether documents of a file say what is held out: their ends."""
        return False

    def held_out_rule(self) -> str:
        """Return how documents are held out if no file is a validation file."""
        return f"a hash holds out 1 document in {self.held_out_every}, or some if that is none"

    def identity(self) -> dict[str, Any]:
        """Return JSON values that decide the ids, besides `inputs` and the tokenizer."""
        return {}

    def subsets(self) -> set[str]:
        """Return the names that `data.subset_shares` may use; empty if there are no subsets."""
        return set()

    def corpora(self) -> dict[str, Path]:
        """Return a file of each corpus that is known to be there before documents are read.

        "" is the corpus of documents that belong to none.
        """
        return {}

    def check(self) -> None:
        """Check files and `subset_shares` before any document is read.

        Raises:
          ValueError: if there are no files, or a subset is unknown or there twice.
        """
        _ = self.inputs
        if self.text_field != "text" and not self.has_fields:
            raise ValueError(
                f"data.text_field: data.source={name_of(type(self))} does not read it; leave it out"
            )
        if self.subset_shares:
            self.check_names("data.subset_shares", self.subset_shares, self.subsets())

    def check_names(
        self, field: str, numbers: Sequence[tuple[str, float]], known: Iterable[str]
    ) -> None:
        """Raise ValueError for a corpus in a field that is not known, or is there twice."""
        if not (names := set(known)):
            source = name_of(type(self))
            raise ValueError(f"{field}: data.source={source} has no subsets; leave it out")
        for name, _ in numbers:
            if subset_name(name) not in map(subset_name, names):
                hint = nearest(name, self.corpora().keys() - {""} or names)
                raise ValueError(f"{field}: unknown corpus {quoted(name)}; {hint}")
        if len(by_corpus(numbers)) < len(numbers):
            raise ValueError(f"{field} names a corpus twice; give it one number")

    def refuse_synonyms(self, folders: Iterable[str]) -> None:
        """Raise ValueError if two folders are one corpus by RedPajama's names: book and books."""
        first: dict[str, str] = {}
        for folder in sorted(folders):
            if (other := first.setdefault(subset_name(folder), folder)) != folder:
                raise ValueError(
                    f"{self.path}: the folders {quoted(other)} and {quoted(folder)} are one corpus "
                    f"by RedPajama's names ({subset_name(folder)}); rename one of them"
                )
