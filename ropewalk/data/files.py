"""Input files of a source: which files of a folder are read, and which of them are held out.

The name of a file, or else the innermost of its folders whose name does, decides the split:

    dev.jsonl  corpus_val-00000-of-00010.jsonl.gz  test/part_1.jsonl     held out
    val_speeches.jsonl  test_questions.jsonl                             words of a subject: not
    valid.en.jsonl  dev_en/a.jsonl                                       beside train.en or en: held

Hidden files and folders are left out. Linked folders are read, each once.
"""

import functools
import hashlib
import os
import re
import unicodedata
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

from ropewalk.data.source import SUBSETS, Document, InputFile, LeftOut, OnBytes, Source
from ropewalk.utils.messages import nearest, one_line
from ropewalk.utils.paths import as_path, in_bucket

# Names of splits in the `datasets` library (huggingface.co/docs/datasets/repository_structure);
# SlimPajama has "holdout", Flores "devtest".
_HELD_OUT = {"validation", "valid", "dev", "val", "test", "testing", "eval", "evaluation"}
_HELD_OUT |= {"heldout", "holdout", "devtest"}
_TRAIN = {"train", "training"}
_SPLITS = _HELD_OUT | _TRAIN
# Terms of a name that are no subject: parts, versions, formats and states of a text.
_UNINFORMATIVE = re.compile(
    "(of|part|shard|chunk|split|set|sub|files?|data|samples?|v|version)?"
    "|text|plain|raw|clean|tfrecord|snappy|zstd|full|final|small|filtered|shuffled|tokenized"
    "|(pre)?processed|dedup(ed|licated)?|(mis)?matched"
)
# Hashes, and numbers as of "00000-of-00001", "10M" or "100BT".
_NUMBER = re.compile(r"(?=.*\d)[0-9a-f]{4,}|\d+([kmbgt][bt]?)?")
# Plain texts about a folder, or about a project.
_ABOUT = re.compile("readme|licen[cs]e|copying|notice|citation|requirements", re.IGNORECASE)
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SHARD = re.compile(r"-\d{5}-of-\d{5}")  # after the name of a split, on the Hub
_PART = re.compile(r"(.*?)(\d+)([-_]of[-_])(\d{1,5})((?!\d)[^/]*)", re.DOTALL)  # of a text
_HUB_HASH = r"-[0-9a-f]{16}(?=\.)"  # after the count of parts


Record = tuple[int, dict, str | None]  # line, fields and problem of a document


class Format(NamedTuple):
    """A format of text files: how they are recognized and read.

    Attributes:
      title: name of the format.
      patterns: names of its files, for messages.
      suffix: regular expression of the end of their names, after a dot.
      records: yields the documents of a file from line `start` (from 1) on, whose text is `field`.
        The fields of a problem are {"damaged_bytes": n}, if it is a part of the file with unknown
        documents.
      first: returns the fields of the first document of a file with a text `field`, or else of the
        first one; those of text are strings. {} if it cannot be read, or is only text.
      is_other: whether a file has other content than documents with a `field`, by its name and its
        first lines. One that is empty or damaged has not.
      is_document: whether a file is one document, without fields.
    """

    title: str
    patterns: str
    suffix: str
    records: Callable[..., Iterator[Record]]  # (path, *, field, start, on_bytes)
    first: Callable[[Path, str], dict] = lambda path, field: {}
    is_other: Callable[[Path, str], bool] = lambda path, field: False
    is_document: bool = False

    def stem(self, name: str) -> str | None:
        """Return the name of a file without the suffix; None for a file of another format."""
        match = re.fullmatch(rf"(.*)\.(?:{self.suffix})", name, re.IGNORECASE | re.DOTALL)
        return match[1] if match else None


class Listing(NamedTuple):
    """Files in order, and the entries that are left out."""

    files: list[InputFile]
    left_out: list[LeftOut]


_CHECKED = 100  # files whose first lines are checked: each takes a millisecond
# A folder with fewer files that are documents holds out the end of each.
_FEW_DOCUMENTS = 10
_HELD_OUT_FILES = 20  # one file in 20


class FileSource(Source):
    """Files of some formats at `data.path`. A subclass names the formats."""

    needs_path = True
    formats: ClassVar[tuple[Format, ...]]

    @functools.cached_property
    def _listing(self) -> Listing:
        return list_files(str(self.path), self.formats, self.text_field, self.ends is None)

    @property
    def files(self) -> list[InputFile]:
        """Files at `data.path`."""
        return self._listing.files

    @property
    def left_out(self) -> list[LeftOut]:
        """Other files at `data.path`."""
        return self._listing.left_out

    @property
    def has_whole_files(self) -> bool:
        """Return whether some files are plain text, each of them one document."""
        return any(self._format(file).is_document for file in self.files)

    @functools.cached_property
    def _ends(self) -> int:
        """`ends`, with the number that None stands for."""
        if self.ends is not None:
            return self.ends
        is_few = len(self.files) < _FEW_DOCUMENTS
        return 10 if is_few and not any(file.validation for file in self.files) else 0

    def holds_out_ends(self, file: int) -> bool:
        """Return whether each document of a file has a beginning and an end, which is held out."""
        return bool(self._ends and (self.ends or self._format(self.files[file]).is_document))

    def held_out_rule(self) -> str:
        """Return the rule for files that are documents, and for other ones."""
        kinds = {self._format(file).is_document for file in self.files}
        if not self._ends or kinds == {False}:
            return super().held_out_rule()
        ends = f"the last 1/{self._ends} of each text file is held out"
        return ends if kinds == {True} else f"{ends}, and {super().held_out_rule()}"

    def _format(self, file: InputFile) -> Format:
        return next(f for f in self.formats if f.stem(file.path.name) is not None)

    def read_file(self, file: int, line: int, on_bytes: OnBytes) -> Iterator[Document]:
        """Yield the documents of a file, in the order of its lines or rows."""
        path, text_format = self.files[file].path, self._format(self.files[file])
        has_parts = self.holds_out_ends(file)
        records = text_format.records(
            path, field=self.text_field, start=1 if has_parts else line, on_bytes=on_bytes
        )
        for number, record, problem in records:
            text = "" if problem else record[self.text_field]
            damaged = record.get("damaged_bytes", 0) if problem else 0
            label = self._label(file, record)
            document = Document(text, file, number, label, problem, damaged)
            parts = _parts(document, self._ends) if has_parts and not problem else [document]
            del text, record, document  # a long text is in memory once
            while parts:
                if (part := parts.pop(0)).line >= line:
                    yield part

    def subsets(self) -> set[str]:
        """Return the first label of each file, and RedPajama's subsets, which documents name."""
        return set(SUBSETS if self.has_fields else ()) | (self.corpora().keys() - {""})

    def corpora(self) -> dict[str, Path]:
        """Return a file of each corpus: those of the first documents of all files.

        Raises:
          ValueError: as `refuse_synonyms`.
        """
        corpora = {
            self._label(i, self._format(file).first(file.path, self.text_field)) or "": file.path
            for i, file in enumerate(self.files)
            if not file.validation
        }
        self.refuse_synonyms(corpora.keys() & {self._label(i, {}) for i in range(len(self.files))})
        return corpora

    def _label(self, file: int, record: dict) -> str | None:
        """Return the subset that a document names, or else the folder that its file is in."""
        *folders, _ = self.files[file].name.split("/")
        folder = next((f for f in folders if not _words(f) or _words(f)[-1] not in _SPLITS), None)
        return _subset(record) or folder

    def check(self) -> None:
        """Check the field `text_field` in the first files, and as `Source.check`."""
        super().check()
        firsts = {self._format(file): file for file in reversed(self.files)}  # of each format
        num_checked = _CHECKED if self.on_bad_document == "error" else 0
        for file in [*self.files[:num_checked], *firsts.values()]:
            first = self._format(file).first(file.path, self.text_field)
            # A null says nothing about the type.
            if first and not isinstance(first.get(self.text_field, ...), str | None):
                fields = strings_in(first)
                raise ValueError(
                    f"data.text_field={self.text_field}: no such field of text in {file.path}; "
                    f"{nearest(self.text_field, fields) if fields else 'it has none'}"
                )

    def identity(self) -> dict[str, str]:
        """Return the field of the text, unless it is "text", and whether folders are subsets."""
        fields = {} if self.text_field == "text" else {"text_field": self.text_field}
        if self.subset_shares and any(self._label(i, {}) for i in range(len(self.files))):
            fields["subsets"] = "labels or folders"  # without folders, as it always was
        return fields


def strings_in(record: dict) -> list[str]:
    """Return the names of the fields that are strings."""
    return [name for name, value in record.items() if isinstance(value, str)]


def _parts(document: Document, ends: int) -> list[Document]:
    """Return the beginning of a text and its last part, which is held out; cut at a paragraph."""
    text = document.text
    near = len(text) - len(text) // ends
    first = len(text) - 2 * len(text) // ends
    cuts = (text.rfind(end, first, near) + len(end) for end in ("\n\n", "\n", " "))
    cut = next((cut for cut in cuts if cut > first), near)
    parts = [
        document._replace(text=text[:cut], held_out=False),
        document._replace(text=text[cut:], held_out=True, line=document.line + 1),
    ]
    return [part for part in parts if part.text and not part.text.isspace()]


def _subset(record: dict) -> str | None:
    """Return RedPajama's subset; its releases store it in two fields."""
    meta = record.get("meta")
    subset = record.get("red_pajama_subset")
    if subset is None and isinstance(meta, dict):
        subset = meta.get("redpajama_set_name")
    return subset if isinstance(subset, str) else None


def list_files(
    path: str | Path, formats: Sequence[Format], text_field: str = "text", holds_out: bool = True
) -> Listing:
    """Return the files of some formats at `path`, a file or a folder, by name.

    Without a name that holds out, some of many plain texts are held out if `holds_out` is true.

    Raises:
      ValueError: if there is none, a link is broken, a folder cannot be read, or a file is there
        twice, compressed and not.
    """
    root = as_path(path)
    patterns = ", ".join(f.patterns for f in formats)
    if root.is_file():
        if all(f.stem(root.name) is None for f in formats):
            raise ValueError(f"{root}: not one of {patterns}")
        return Listing([InputFile(path=root, name=root.name, size=root.stat().st_size)], [])
    if not root.is_dir():
        exists = os.path.lexists(root)
        what = "a pipe, a device or a broken link" if exists else "no such file or folder"
        raise ValueError(f"{root}: {what}; data.path=FOLDER, or the path of a task, names the text")
    try:
        paths, left_out = _walk(root, lambda name: any(f.stem(name) is not None for f in formats))
    except (PermissionError, FileNotFoundError, ProcessLookupError) as error:
        what = f"{error.filename}: cannot be read ({error.strerror})"
        raise ValueError(f"{what}; change its mode, or name another folder") from None
    stems, documents = {}, []
    for name, file in paths.items():
        text_format = next((f for f in formats if f.stem(file.name) is not None), None)
        if text_format is None:
            titles = " or ".join(f.title for f in formats)
            hint = "; load_from_disk(FOLDER).to_parquet(FILE) of `datasets` converts it"
            left_out.append(LeftOut(name, f"not {titles}{hint * name.endswith('.arrow')}"))
            continue
        if text_format.is_document and _ABOUT.fullmatch(text_format.stem(file.name) or ""):
            left_out.append(LeftOut(name, "about the folder; name the file itself to read it"))
        elif text_format.is_other(file, text_field):
            first = text_format.first(file, text_field)
            fields = ", ".join(strings_in(first) if text_field not in first else ())
            hint = f"data.text_field may name {fields}" if fields else "jq -c .[] splits an array"
            reason = f'no "{text_field}" in its first lines ({hint})'
            left_out.append(LeftOut(name, f"not {text_format.title}: {reason}"))
        else:
            stems[name] = text_format.stem(name)
            documents += [name] * text_format.is_document
    if not stems:
        raise ValueError(
            f"{root}: folder holds none of {patterns}{'; ' * bool(left_out)}"
            + "; ".join(describe_left_out(left_out))
            + "; data.source=files reads JSON lines, Parquet and plain text"
            * (len(formats) == 1 and bool(left_out))
        )
    _refuse_copies(root, stems)
    held_out = _held_out(stems)
    if holds_out and not held_out and len(documents) == len(stems) >= _FEW_DOCUMENTS:
        documents.sort(
            key=lambda name: hashlib.sha256(name.encode(errors="surrogateescape")).digest()
        )
        held_out = set(documents[: max(1, len(documents) // _HELD_OUT_FILES)])
    files = [
        InputFile(path=file, name=name, size=file.stat().st_size, validation=name in held_out)
        for name, file in paths.items()
        if name in stems
    ]
    return Listing(files, left_out)


def _walk(root: Path, is_format: Callable[[str], bool]) -> tuple[dict[str, Path], list[LeftOut]]:
    """Return the regular files below a folder by relative name, in order, and what is left out.

    A folder, or a file whose name is that of a format, to which several names lead has the name
    without links, or else the first. The Hub's cache links names to files without suffixes.
    """
    if in_bucket(root):  # has no links
        objects = {path.relative_to(root).as_posix(): path for path in root.rglob("*")}
        hidden = {name for name in objects if re.search(r"(^|/)\.", name)}
        objects = {name: objects[name] for name in sorted(objects.keys() - hidden)}
        return objects, [LeftOut(name, "hidden") for name in sorted(hidden)]
    files: dict[str, Path] = {}
    left_out: list[LeftOut] = []
    names: dict[str, str] = {}  # relative names by real path
    queue = deque([root])  # links come last
    while queue:
        path = queue.popleft()
        is_folder = path.is_dir()
        name = path.relative_to(root).as_posix() + "/" * is_folder
        real = os.path.realpath(path)
        if path != root and path.name.startswith("."):
            left_out.append(LeftOut(name, "hidden"))
        elif not path.exists():
            raise ValueError(
                f"{path}: the target of this link is missing ({os.readlink(path)}); mount or "
                "download it, or delete the link"
            )
        elif path.is_symlink() and Path(os.path.realpath(path.parent)).is_relative_to(real):
            left_out.append(LeftOut(name, "links to a folder around it"))
        elif real in names:
            left_out.append(LeftOut(name, f"links to {names[real]}, which is read"))
        elif path != root and (path / "checkpoints").is_dir() and (path / "config.json").exists():
            left_out.append(LeftOut(name, "a run"))  # its files change, and are no text
        elif is_folder:
            names[real] = name
            entries = sorted(path.iterdir())
            queue.extendleft(entry for entry in reversed(entries) if not entry.is_symlink())
            queue.extend(entry for entry in entries if entry.is_symlink())
        elif path.is_file():
            files[name] = path
            names |= {real: name} if is_format(path.name) else {}
        else:
            left_out.append(LeftOut(name, "not a regular file"))
    return dict(sorted(files.items())), sorted(left_out)


def _refuse_copies(root: Path, names: Iterable[str]) -> None:
    """Raise ValueError if a file is there twice, as gzip --keep leaves it."""
    by_name: dict[str, str] = {}
    for name in names:
        uncompressed = re.sub(r"\.(gz|zst)$", "", name, flags=re.IGNORECASE)
        other = by_name.setdefault(uncompressed, name)
        if other != name:
            raise ValueError(
                f"{root}: {other} and {name} are one file, compressed and not; move one away"
            )


def _held_out(stems: dict[str, str]) -> set[str]:
    """Return the names of held-out files; none if all names hold out.

    Args:
      stems: relative names without suffixes, by relative name.
    """
    terms = {name: list(map(_words, re.split(r"[\\/]", stem))) for name, stem in stems.items()}
    # Terms of other files and folders: `valid.en` is held out beside `train.en`, and `en`.
    of_training = {
        tuple(word for word in part if word not in _TRAIN)
        for parts in terms.values()
        for part in parts
        if _HELD_OUT.isdisjoint(part)
    }

    def marks(part: list[str]) -> list[bool]:
        """Return whether a part of a name holds out; nothing if it does not say."""
        rest = tuple(word for word in part if word not in _HELD_OUT)
        if len(rest) < len(part) and (part[-1] in _HELD_OUT or rest in of_training):
            return [True]
        return [False] if part and part[-1] in _TRAIN else []

    held_out = {name for name, parts in terms.items() if sum(map(marks, parts), [False])[-1]}
    return held_out if len(held_out) < len(stems) else set()


def _words(name: str) -> list[str]:
    """Return the terms of a name in lower case, without numbers, hashes and terms like "part"."""
    name = unicodedata.normalize("NFC", name)  # macOS stores an accent as a character of its own
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()
    name = re.sub(r"h[eo]ld[^a-z0-9]?out", "heldout", _UUID.sub("", name))
    terms = (word for word in re.split(r"[\W_]+", name) if not _NUMBER.fullmatch(word))
    terms = (re.sub(r"((set|split)s?)?\d*$", "", word) for word in terms)
    words = [word for word in terms if not _UNINFORMATIVE.fullmatch(word)]
    return words[:1] if _SHARD.search(name) and words and words[0] in _SPLITS else words


def describe_left_out(left_out: Sequence[LeftOut]) -> list[str]:
    """Return one line per reason."""
    names = defaultdict(list)
    for name, reason in left_out:
        names[reason].append(name)
    return [f"left out: {shorten(names[reason])} ({reason})" for reason in names]


def find_unread_parts(names: Iterable[str]) -> list[str]:
    """Return the names of the parts that are missing among the numbered parts of each text."""
    numbers = defaultdict(list)
    for name in names:
        if match := _PART.fullmatch(re.sub(_HUB_HASH, "", name)):
            before, number, after, count, end = match.groups()
            numbers[before, f"{after}{count}{end}", int(count)].append(number)
    unread = []
    for (before, after, count), read in numbers.items():
        present, digits = set(map(int, read)), min(map(len, read))
        first = int(count in present)  # parts count from 0 or from 1
        missing = sorted(set(range(first, first + count)) - present)
        unread += [f"{before}{number:0{digits}}{after}" for number in missing]
    return unread


def shorten(names: Sequence[str], limit: int = 8) -> str:
    """Return a list of names as text, the middle of a long one left out."""
    names = [one_line(name, 80) for name in names]
    if len(names) <= limit:
        return ", ".join(names)
    return f"{', '.join(names[: limit - 1])} ... {names[-1]} ({len(names)} in all)"
