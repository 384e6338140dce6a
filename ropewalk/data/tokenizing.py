"""Documents of a source to token stores, in threads: the slow part of `data.prepare`."""

import contextlib
import dataclasses
import functools
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ropewalk.data import domains
from ropewalk.data import store as store_lib
from ropewalk.data import tokenizer as tokenizer_lib
from ropewalk.data.content import identities
from ropewalk.data.source import (
    LISTED,
    SKIP_ADVICE,
    Document,
    Source,
    by_corpus,
    ignore_bytes,
    subset_name,
)
from ropewalk.data.tokenizer import Tokenizer, file_in, first_change
from ropewalk.data.verify import read_tokenizer
from ropewalk.utils.files import write_atomically
from ropewalk.utils.manifest import file_entries, read_manifest, write_manifest
from ropewalk.utils.messages import print_note
from ropewalk.utils.plugins import name_of
from ropewalk.utils.progress import byte_progress
from ropewalk.utils.threads import map_ahead, num_cpus

SHARD_TOKENS = 1 << 26
SLICE = 1 << 20  # characters encoded at a time
BUNDLE = 1 << 18  # characters per task of a thread
SAMPLE = 16 << 20  # characters that train a tokenizer ...
SAMPLE_DOCUMENT = 1 << 14  # ... and how many of them one of the documents of a file provides
HELD_OUT = 1 << 14  # bytes of text that are enough for validation
COUNTED = 1 << 14  # texts among which repeated ones are counted; their hashes choose them


def write_prepared(
    folder: Path,
    settings: dict[str, Any],
    source: Source,
    tokenizer: Tokenizer | None,
) -> None:
    """Write all files of a prepared folder, `prepare.json` last; continue after a stopped run.

    Args:
      folder: an existing folder.
      settings: recorded in `prepare.json`; "vocab_size" is that of a tokenizer trained here.
      source: the documents.
      tokenizer: None trains one on the documents.

    Raises:
      ValueError: on bad input, as `FILE:LINE: problem`.
    """
    for part in folder.rglob("*.part"):  # left by a killed process
        part.unlink()
    if not file_in(folder).exists():
        if tokenizer:
            write_atomically(folder / tokenizer.file_name, tokenizer.model)
        else:
            tokenizer_lib.train(_sample(source), file_in(folder), settings["vocab_size"])
    tokenizer = read_tokenizer(folder)
    report = {"settings": settings, "path": source.path, "tokenizer": tokenizer.fingerprint}
    paths = [file_in(folder)]
    if source.has_text:
        writer = _StoreWriter(folder, tokenizer, settings)
        report |= _write_stores(writer, *_hold_out(source, tokenizer, settings), tokenizer)
        stores = ["validation", *domains.folders(settings).values()]
        paths += [folder / name / "store.json" for name in stores]
    if identities(source) != settings["files"]:
        (folder / "progress.json").unlink(missing_ok=True)
        file_in(folder).unlink()
        raise ValueError(f"{source.path}: a file changed while it was read; run the command again")
    write_manifest(folder / "prepare.json", report, file_entries(folder, paths))


def _sample(source: Source) -> Iterator[str]:
    """Yield the beginnings of documents from files across the source; not of corpora left out.

    Of plain texts, which are often few and long, as much as the sample has room for.
    """
    shares = by_corpus(source.subset_shares)
    indices = [i for i, file in enumerate(source.files) if not file.validation]
    indices = indices[:: max(1, len(indices) // 1024)]
    per_file = SAMPLE // max(1, len(indices))
    per_document = per_file if source.has_whole_files else SAMPLE_DOCUMENT
    for index in indices:
        size = 0
        for document in _check(source.read_file(index, 1, ignore_bytes), source):
            if size >= per_file:
                break
            if document.held_out or not shares.get(subset_name(document.subset), 1.0):
                continue
            text = document.text[:per_document]
            yield text
            size += len(text)


def _place(document: Document, source: Source) -> str:
    return f"{source.files[document.file].path}:{document.line}"


def _check(documents: Iterable[Document], source: Source) -> Iterator[Document]:
    """Yield documents, bad ones with `FILE:LINE: problem`, or raise ValueError for a bad one."""
    for document in documents:
        if document.problem:
            problem = f"{_place(document, source)}: {document.problem}"
            if source.on_bad_document == "error":
                raise ValueError(f"{problem}; {SKIP_ADVICE}")
            document = document._replace(problem=problem)
        yield document


def _write_stores(
    writer: "_StoreWriter", source: Source, last: tuple[int, int], tokenizer: Tokenizer
) -> dict[str, Any]:
    """Write the stores of both splits; return the counts for `prepare.json`.

    Args:
      last: the last `_turn` that is held out.
    """
    threads = num_cpus()
    sizes = [file.size for file in source.files]
    with contextlib.closing(writer):
        progress = writer.progress
        file, line = progress["after"]
        done = sum(sizes[:file])
        with byte_progress("tokenizing", sum(sizes), done=done) as on_bytes:
            documents = source.read(start=(file, line), on_bytes=on_bytes)
            bundles = _bundles(_split(documents, source, last))
            encode = functools.partial(_encode, tokenizer)
            for bundle in map_ahead(encode, bundles, num_threads=threads, ahead=4 * threads):
                for encoded in bundle:
                    try:
                        writer.add(encoded)
                    except ValueError as error:
                        where = _place(encoded.document, source)
                        raise ValueError(f"{where}: {error}") from None
            counts = writer.finish()
    before, after = (sum(progress[name].values()) for name in ("text_bytes", "piece_bytes"))
    if after != before or writer.changed:
        sizes = f"{before:,} bytes became {after:,}" if after != before else writer.changed
        why = "its normalizer does, or it has no pieces for some characters"
        latter = f"{sizes}; bits per byte count the latter"
        print_note(source.path, f"the tokenizer changes the text ({why}): {latter}")
    if not counts["train"]["documents"]:
        name = source.path or name_of(type(source))
        raise ValueError(f"{name}: no document; use more text, or larger data.subset_shares")
    return {
        **counts,
        "repeated": writer.repeated(),
        "missing_subsets": sorted(by_corpus(source.subset_shares).keys() - progress["subsets"]),
        "skipped": {
            "count": progress["num_skipped"],
            "damaged_bytes": progress["damaged_bytes"],
            "first": progress["skipped"],
        },
    }


def _split(
    documents: Iterable[Document], source: Source, last: tuple[int, int]
) -> Iterator[Document]:
    """Yield all documents with our names of their subsets, and whether they are held out.

    The text of one that `subset_shares` leaves out is empty.
    """
    has_validation_files = any(file.validation for file in source.files)
    shares = by_corpus(source.subset_shares)
    for document in _check(documents, source):
        subset, held_out = subset_name(document.subset), document.held_out
        digest = hashlib.sha256(document.text.encode()).hexdigest()
        if held_out is None:
            held_out = _turn(digest, source) <= last
            if has_validation_files:
                held_out = source.files[document.file].validation
        text = document.text if _is_kept(digest, document, shares) else ""
        yield document._replace(text=text, subset=subset, held_out=held_out, digest=digest)


def _is_kept(digest: str, document: Document, shares: dict[str, float]) -> bool:
    """Return whether `subset_shares` keeps a document."""
    return int(digest[8:16], 16) < shares.get(subset_name(document.subset), 1.0) * 2**32


def _turn(digest: str, source: Source) -> tuple[int, int]:
    """Return the place of a text among those that may be held out; the first have 0 in front."""
    number = int(digest[:8], 16)
    return number % source.held_out_every, number


def names_held_out(source: Source) -> bool:
    """Return whether names of files decide what is held out."""
    return any(file.validation for file in dataclasses.replace(source, ends=0).files)


def _hold_out(
    source: Source, tokenizer: Tokenizer, settings: dict[str, Any]
) -> tuple[Source, tuple[int, int]]:
    """Return the source to read, and the last `_turn` that is held out.

    One text in `held_out_every` is; if none is, the first texts that fill `HELD_OUT` bytes, or a
    tenth of all. With "held_out_ids" in the settings, the first texts that have so many ids. One
    text stays for training; of a single one, an end of so many ids is held out.
    """
    num_ids, usual = settings.get("held_out_ids"), (0, 2**32)
    if num_ids:
        source = dataclasses.replace(source, ends=0)
    elif any(file.validation for file in source.files):
        return source, (0, 0)

    def count(document: Document) -> int:
        return len(_encode_document(tokenizer, document).ids)

    texts, shares = {}, by_corpus(source.subset_shares)
    files = (i for i in range(len(source.files)) if not source.holds_out_ends(i))
    for document in (x for i in files for x in source.read_file(i, 1, ignore_bytes)):
        content = document.text.encode()
        digest = hashlib.sha256(content).hexdigest()
        if not document.problem and _is_kept(digest, document, shares):
            turn = _turn(digest, source)
            if turn <= usual and not num_ids:
                return source, usual
            texts[turn] = count(document) if num_ids else len(content)
    wanted, turns = num_ids or min(HELD_OUT, sum(texts.values()) / 10), sorted(texts)[:-1]
    sums = np.cumsum([texts[turn] for turn in turns])
    turns = turns[: 1 + int(np.searchsorted(sums, wanted))]
    if turns or not num_ids:
        return source, turns[-1] if num_ids else max([usual, *turns])  # of no text: `usual`
    for ends in range(10, 1, -1):
        source = dataclasses.replace(source, ends=ends)
        if sum(count(part) for part in source.read() if part.held_out) >= wanted:
            break
    return source, (0, 0)


def _cut(text: str) -> Iterator[str]:
    """Yield slices of a long text, cut before a newline or else before a run of spaces.

    No piece of a tokenizer trained here crosses a newline, so the ids equal those of the uncut
    text. The ids of another tokenizer may differ at a cut, once in a million characters.
    """
    start = 0
    while len(text) - start > SLICE:
        cut = text.rfind("\n", start + 1, start + SLICE)
        if cut < 0:
            cut = text.rfind(" ", start + 1, start + SLICE)
            while cut > start and text[cut - 1] == " ":
                cut -= 1
        if cut <= start:
            cut = start + SLICE
        yield text[start:cut]
        start = cut
    yield text[start:]


def _bundles(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """Yield lists of documents with about `BUNDLE` characters, or one longer document."""
    bundle, size = [], 0
    for document in documents:
        bundle.append(document)
        size += len(document.text) + 100
        if size >= BUNDLE:
            yield bundle
            bundle, size = [], 0
    if bundle:
        yield bundle


class _Encoded(NamedTuple):
    """A document without its text, which may be long.

    Attributes:
      document: the document.
      ids: of a store's type, from BOS to EOS.
      text_bytes, piece_bytes: UTF-8 bytes of the text, and of the text that its ids stand for.
      change: the first difference between them; "" if there is none.
    """

    document: Document
    ids: np.ndarray
    text_bytes: int
    piece_bytes: int
    change: str


def _encode(tokenizer: Tokenizer, bundle: list[Document]) -> list[_Encoded]:
    """Return documents as ids. SentencePiece releases the interpreter lock."""
    return [_encode_document(tokenizer, document) for document in bundle]


def _encode_document(tokenizer: Tokenizer, document: Document) -> _Encoded:
    dtype = store_lib.store_dtype(tokenizer.vocab_size)
    parts: list[Any] = [[tokenizer.bos_id]]
    before, after, change = 0, 0, ""
    for number, text in enumerate(_cut(document.text)):
        ids = np.array(tokenizer.encode(text, inside=number > 0), dtype)
        content, stored = text.encode(), tokenizer.text_of(ids, inside=number > 0)
        if content != stored and not change:
            change = first_change(text, stored.decode(errors="replace"))
        parts.append(ids)
        before, after = before + len(content), after + len(stored)
    ids = np.concatenate([*parts, tokenizer.end], dtype=dtype, casting="unsafe")
    return _Encoded(document._replace(text=""), ids, before, after, change)


class _StoreWriter:
    """Writes the stores of validation and of the domains of training, one shard of each at a time.

    Attributes:
      changed: the first difference between a text and that of its ids; "" if none is known.
      progress: content of `progress.json`, which covers finished shards only. after: file and line
        of the first document that is not in a finished shard; shards: entries of each store;
        text_bytes: UTF-8 bytes of the text in each store; piece_bytes: those of its ids; tokenizer:
        its fingerprint; num_skipped, damaged_bytes, skipped: numbers of skipped documents (or
        damaged parts of files) and of the bytes in such parts, and the first problems;
        num_segments: finished shards per store; subsets: those of `data.subset_shares` that
        documents belong to; counts: documents of training and of validation that have a text, by
        its digest, of one text in `one_in`.
    """

    def __init__(self, folder: Path, tokenizer: Tokenizer, settings: dict[str, Any]):
        self._folder, self._tokenizer, self._settings = folder, tokenizer, settings
        self._folders = domains.folders(settings)
        self._subsets = by_corpus(settings["subset_shares"]).keys()
        self._names = [*self._folders.values(), "validation"]
        for name in self._names:
            (folder / name).mkdir(exist_ok=True)
        self._writers: dict[str, store_lib.ShardWriter] = {}
        self.changed = ""
        self.progress = {
            "after": [0, 1],
            "shards": {name: [] for name in self._names},
            "text_bytes": dict.fromkeys(self._names, 0),
            "piece_bytes": dict.fromkeys(self._names, 0),
            "tokenizer": tokenizer.fingerprint,
            "num_skipped": 0,
            "damaged_bytes": 0,
            "skipped": [],
            "num_segments": 0,
            "subsets": [],
            "counts": {},
            "one_in": 1,
        }
        with contextlib.suppress(FileNotFoundError):
            self.progress |= read_manifest(folder / "progress.json")

    def close(self) -> None:
        """Delete unfinished shards."""
        for writer in self._writers.values():
            writer.discard()

    def add(self, encoded: _Encoded) -> None:
        """Store a document of `_split`, or count a skipped one.

        Raises:
          ValueError: as `domains.domain_of`, or if there is BOS or EOS inside the document.
        """
        progress, document, ids = self.progress, encoded.document, encoded.ids
        progress["after"] = [document.file, document.line + 1]
        if document.problem:
            progress["num_skipped"] += 1
            progress["damaged_bytes"] += document.damaged_bytes
            progress["skipped"] = [*progress["skipped"], document.problem][:LISTED]
            return
        if document.subset in self._subsets and document.subset not in progress["subsets"]:
            progress["subsets"].append(document.subset)
        if not encoded.text_bytes:
            return
        if not self._writers:
            shard, vocab_size = f"{progress['num_segments']:05d}", self._tokenizer.vocab_size
            self._writers = {
                name: store_lib.ShardWriter(self._folder / name, shard, vocab_size)
                for name in self._names
            }
        self._count(document)
        ends = [self._tokenizer.bos_id, *self._tokenizer.end]
        if np.isin(ids[1 : len(ids) - len(ends) + 1], ends).any():
            raise ValueError("the tokenizer writes BOS or EOS inside this text; use another one")
        name = "validation"
        if not document.held_out:
            key = domains.domain_of(self._settings, document.subset or "", len(ids))
            name = self._folders[key]
        self._writers[name].append(ids)
        progress["text_bytes"][name] += encoded.text_bytes
        progress["piece_bytes"][name] += encoded.piece_bytes
        self.changed = self.changed or encoded.change
        if sum(writer.num_tokens for writer in self._writers.values()) >= SHARD_TOKENS:
            self._finish_shards()

    def _count(self, document: Document) -> None:
        """Count the documents of each text; if there are many, of a part of the texts."""
        progress, digest = self.progress, document.digest[-16:]  # its start decides the split
        if int(digest, 16) % progress["one_in"] == 0:
            progress["counts"].setdefault(digest, [0, 0])[bool(document.held_out)] += 1
        while len(progress["counts"]) > COUNTED:
            progress["one_in"] *= 2
            counts = progress["counts"].items()
            progress["counts"] = {x: n for x, n in counts if int(x, 16) % progress["one_in"] == 0}

    def repeated(self) -> list[float]:
        """Return two estimates: parts of the documents of training and of validation.

        Those that repeat another one of training, and those that are in training too.
        """
        counts = np.array([*self.progress["counts"].values()], int).reshape(-1, 2)
        training, held_out = counts.T
        pairs = (np.maximum(training - 1, 0), training), (held_out * (training > 0), held_out)
        return [float(part.sum() / max(1, total.sum())) for part, total in pairs]

    def _finish_shards(self) -> None:
        progress, files = self.progress, {}
        for split, writer in self._writers.items():
            entry = writer.finish()
            progress["shards"][split] += [entry] if entry else []
            for shard in progress["shards"][split]:
                files |= {f"{split}/{name}": entry for name, entry in shard["files"].items()}
        self._writers.clear()
        progress["num_segments"] += 1
        write_manifest(self._folder / "progress.json", progress, files)

    def finish(self) -> dict[str, dict[str, Any]]:
        """Write the index of each store; return the counts of both splits and of domains."""
        if self._writers:
            self._finish_shards()
        counts = {}
        for name, shards in self.progress["shards"].items():
            store_lib.write_index(self._folder / name, shards, self._tokenizer)
            store = store_lib.TokenStore(self._folder / name)
            counts[name] = {
                "fingerprint": store.fingerprint,
                "documents": store.num_documents,
                "tokens": store.num_tokens,
                "text_bytes": self.progress["text_bytes"][name],
            }
        validation = counts.pop("validation")
        if "strata" not in self._settings:
            return {**counts, "validation": validation}
        totals = {
            name: sum(domain[name] for domain in counts.values())
            for name in ("documents", "tokens", "text_bytes")
        }
        return {"train": totals, "validation": validation, "strata": counts}
