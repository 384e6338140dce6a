"""Text to tokens, once, for all runs that use it.

    runs/data/jsonl-3f9c.../      named by what went in, so that it is found again
      tokenizer.model (or tokenizer.json)
      train/  validation/         token stores (data.store)
      prepare.json                what went in and came out; written last: it makes the folder valid
      progress.json               the shards finished so far; a stopped run goes on after them
      verified.json               of a large folder: sizes and times of its files, found whole

Every document is stored as [BOS] + ids + [EOS]. Documents go to validation if they are in a file
named so, or, in a source without such files, by a hash of their text: one in a hundred, or of
`local`, which is small, one in four (one in twenty with data.documents=1). Equal texts fall on the
same side.

train.py does this by itself when it has to; here it can be done beforehand, and stopped and started
again at will:

    python -m data.prepare                                        the standard library's source
    python -m data.prepare --source jsonl --path DIR --vocab-size 4096
    python -m data.prepare --source jsonl --path DIR --tokenizer llama/tokenizer.model
    python -m data.prepare --source redpajama --path DIR          the files as published

A run finds the result if its data.source, data.path, data.tokenizer or data.vocab_size and
data.prepared_root are the same (here --out), and reads it once to see that it is as it was written
(`data.verify`). This reads it whatever was found before, says what is damaged and exits with 2:

    python -m data.prepare --verify                               every folder under --out
    python -m data.prepare --verify runs/data/jsonl-3f9c...
"""

import argparse
import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import rich.console
import rich.progress

from data import store as store_lib
from data import tokenizer as tokenizer_lib
from data.config import DataConfig
from data.files import check_writable, read_checksummed, write_checksummed
from data.locks import lock
from data.sources import (
    LISTED,
    SUBSET_NAMES,
    SUBSETS,
    Document,
    InputFile,
    json_records,
    jsonl_files,
    local_files,
    read_documents,
    subset_of,
)
from data.threads import map_ahead, num_cpus
from data.tokenizer import Tokenizer, file_in
from data.verify import SPLITS, check_intact, read_report, read_tokenizer, verify
from settings.commands import Parser
from settings.messages import nearest, quoted
from settings.places import copy, in_bucket, local, place

VERSION = 1  # of all that decides ids from text: raise it and everything is prepared anew
SHARD_TOKENS = 1 << 26
SLICE = 1 << 20  # characters encoded at a time
UNIT = 1 << 18  # characters given to a thread at a time
ON_DISK = "runs/data"  # where text for a bucket is made into ids
SAMPLE = 16 << 20  # characters a tokenizer is trained on ...
SAMPLE_DOCUMENT = 1 << 14  # ... of which one document gives at most


def prepare(config: DataConfig, *, show_progress: bool = True) -> Path:
    """The folder with the tokens of `config`'s text: found under its `prepared_root`, or made.

    A run that was stopped, however hard, goes on after its last finished shard and ends with the
    same bytes as one that was not. Source "retrieval" has no text and no stores, only a tokenizer
    (trained on the text of "local" if none is given).

    Raises:
      ValueError: on bad input, as `FILE:LINE: what is wrong`; if what is found is damaged.
    """
    given = check_arguments(config)
    root = place(config.prepared_root)
    # What needs locks and renames happens on a disk; a bucket has the finished folder.
    on_disk = dataclasses.replace(config, prepared_root=ON_DISK) if in_bucket(root) else config
    source = _source(on_disk, show_progress)
    settings = {
        "version": VERSION,
        "source": config.source,
        "files": [[file.name, file.size] for file in source.files],
        "subset_shares": sorted(config.subset_shares),
        "tokenizer": given.fingerprint if given else None,
        "vocab_size": None if given else config.vocab_size,
        "shard_tokens": SHARD_TOKENS,
    }
    if config.source == "local" and config.documents == 2:
        settings["one_in"] = _one_in(config)  # not said before it was a choice
    name = hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:12]
    folder = root / f"{config.source}-{name}"
    # Who only reads needs no lock, and may not be allowed to write.
    if not (folder / "prepare.json").exists():
        check_writable(root, "name another data.prepared_root (of data.prepare: --out)")
        if in_bucket(root):
            _copy_up(prepare(on_disk, show_progress=show_progress), folder)
    if not (folder / "prepare.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        with lock(folder / ".lock"):  # a second process waits, and then finds the work done
            if not (folder / "prepare.json").exists():
                _make(config, settings, source, folder, given, show_progress)
    check_intact(folder, show_progress=show_progress)
    skipped = read_report(folder).get("skipped", {"count": 0})
    if skipped["count"] and config.on_bad_document == "error":
        raise ValueError(
            f"{skipped['first'][0]} (and {skipped['count'] - 1} more); "
            "on_bad_document=skip leaves such documents out"
        )
    return folder


def check_arguments(config: DataConfig) -> Tokenizer | None:
    """Return the tokenizer that `config` names, once all that it says of its text is checked.

    No document is read: that, and tokenizing them, may take a day.

    Raises:
      ValueError: if the source has no files or no subset that `subset_shares` names, if no subset
        is left, or for a tokenizer or a `vocab_size` that cannot be.
    """
    if config.source in ("jsonl", "redpajama"):
        jsonl_files(str(config.path))
    _check_subset_shares(config)
    if config.tokenizer:
        return Tokenizer(config.tokenizer)
    tokenizer_lib.check_vocab_size(config.vocab_size)
    return None


def _check_subset_shares(config: DataConfig) -> None:
    if not config.subset_shares:
        return
    if config.source in ("local", "retrieval"):
        raise ValueError(f"subset_shares: data.source={config.source} has no subsets; leave it out")
    subsets = _published_subsets(config) or set(SUBSETS) | _first_labels(config)
    shares: dict[str, float] = {}
    for name, share in config.subset_shares:
        subset = SUBSET_NAMES.get(name, name)
        if subset not in subsets:
            raise ValueError(
                f"unknown subset {quoted(name)} in subset_shares; {nearest(name, subsets)}"
            )
        if subset in shares:
            raise ValueError(f"subset_shares names {subset} twice; give it one share")
        shares[subset] = share
    # Documents of jsonl may be of no subset, and are kept.
    if config.source == "redpajama" and all(shares.get(subset) == 0 for subset in subsets):
        raise ValueError("subset_shares keeps no document: all subsets there have share 0")


def _published_subsets(config: DataConfig) -> set[str]:
    """Return the subsets that the names of RedPajama's files tell; empty where no name does."""
    if config.source != "redpajama":
        return set()
    from data.redpajama.redpajama_dataset_builder import layout, published_files

    root = Path(str(config.path))
    return {subset for _, subset in published_files(layout(root), root) if subset}


def _first_labels(config: DataConfig) -> set[str]:
    """Return the subset labels of the first record of each file: a private corpus has its own."""
    if config.source != "jsonl":
        return set()
    records = (next(json_records(file.path))[1] for file in jsonl_files(str(config.path)))
    return {label for label in map(subset_of, records) if label}


def _copy_up(made: Path, folder: Path) -> None:
    """A finished folder into a bucket, what makes it valid last."""
    splits = [made / split for split in SPLITS if (made / split).exists()]
    for path in (file_in(made), *splits, made / "prepare.json"):
        copy(path, folder / path.name)


def _make(
    config: DataConfig,
    settings: dict,
    source: "_Source",
    folder: Path,
    given: Tokenizer | None,
    show_progress: bool,
) -> None:
    """Everything in the folder, `prepare.json` last."""
    for part in folder.rglob("*.part"):  # of one that was killed
        part.unlink()
    tokenizer_path = file_in(folder)
    if not tokenizer_path.exists():
        if given:
            tokenizer_path = folder / given.file_name
        part = tokenizer_path.with_suffix(".part")
        if given:
            part.write_bytes(given.model)
        else:
            tokenizer_lib.train(_sample(source, config), part, config.vocab_size)
        os.replace(part, tokenizer_path)
    tokenizer = read_tokenizer(folder)
    report = {"settings": settings, "path": config.path, "tokenizer": tokenizer.fingerprint}
    if config.source != "retrieval":
        report |= _tokenize(config, source, folder, tokenizer, show_progress)
    write_checksummed(folder / "prepare.json", report)


class _Source(NamedTuple):
    """Documents, and the files (or splits) they are counted in.

    Attributes:
      files: in order.
      read: `(start=(file, line), on_bytes=...)` gives the documents from a place on.
      skipped: documents already left out, how many and the first of them.
    """

    files: list[InputFile]
    read: Callable[..., Iterator[Document]]
    skipped: tuple[int, list[str]] = (0, [])


def _source(config: DataConfig, show_progress: bool) -> _Source:
    if config.source == "redpajama":
        from data.redpajama.source import RedPajama  # tensorflow-datasets is slow to import

        redpajama = RedPajama(
            str(config.path),
            local(config.prepared_root) / "tensorflow_datasets",
            skip=config.on_bad_document == "skip",
            show_progress=show_progress,
        )
        return _Source(files=redpajama.files, read=redpajama.read, skipped=redpajama.skipped)
    files = jsonl_files(str(config.path)) if config.source == "jsonl" else local_files()
    return _Source(files=files, read=functools.partial(read_documents, files))


def _sample(source: _Source, config: DataConfig) -> Iterator[str]:
    """Text for the tokenizer: the beginnings of documents from files all over the source."""
    chosen = [i for i, file in enumerate(source.files) if not file.validation]
    chosen = chosen[:: max(1, len(chosen) // 1024)]
    for index in chosen:
        taken = 0
        for document in source.read(start=(index, 1)):
            if document.file != index or taken >= SAMPLE // len(chosen):
                break
            if document.problem and config.on_bad_document == "error":
                raise _bad_document(document, source.files)
            text = document.text[:SAMPLE_DOCUMENT]
            yield text
            taken += len(text)


def _bad_document(document: Document, files: list[InputFile]) -> ValueError:
    return ValueError(f"{files[document.file].path}:{document.line}: {document.problem}")


# Tokenizing


class _Piece(NamedTuple):
    """A document, or a slice of a long one.

    Attributes:
      text: of the slice.
      after: the place from which to go on once the document is stored.
      first, last: whether the document begins and ends with it.
      validation: where the document goes.
      problem: `FILE:LINE: what` of a document left out instead.
    """

    text: str
    after: tuple[int, int]
    first: bool = True
    last: bool = True
    validation: bool = False
    problem: str | None = None


def _pieces(
    documents: Iterable[Document], files: list[InputFile], config: DataConfig, subsets: list[str]
) -> Iterator[_Piece]:
    """Pieces of the documents to store; the names of subsets met are added to `subsets`."""
    own_validation = any(file.validation for file in files)
    one_in = _one_in(config)
    shares = {SUBSET_NAMES.get(name, name): share for name, share in config.subset_shares}
    for document in documents:
        after = (document.file, document.line + 1)
        if document.problem:
            error = _bad_document(document, files)
            if config.on_bad_document == "error":
                raise error
            yield _Piece(text="", after=after, problem=str(error))
            continue
        if document.subset is not None and document.subset not in subsets:
            subsets.append(document.subset)
        subset = document.subset or ""
        share = shares.get(SUBSET_NAMES.get(subset, subset), 1.0)
        digest = hashlib.sha256(document.text.encode()).hexdigest()
        if int(digest[8:16], 16) >= share * 2**32:
            continue
        held_out = int(digest[:8], 16) % one_in == 0
        validation = files[document.file].validation if own_validation else held_out
        for n, (text, last) in enumerate(_slices(document.text)):
            yield _Piece(text=text, first=n == 0, last=last, validation=validation, after=after)


def _one_in(config: DataConfig) -> int:
    """Of how many documents one is held out."""
    if config.source != "local":
        return 100
    return 20 if config.documents == 1 else 4  # 50 documents and 100,000 tokens, for perplexity


def _slices(text: str) -> Iterator[tuple[str, bool]]:
    """Cuts a long text before a newline, or else before a run of spaces; True with the last slice.

    No piece of a tokenizer made here crosses a newline, so the ids are those of the whole text;
    with another tokenizer they may differ at a cut, once in a million characters.
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
        yield text[start:cut], False
        start = cut
    yield text[start:], True


def _units(pieces: Iterable[_Piece]) -> Iterator[list[_Piece]]:
    """Pieces in bundles of about UNIT characters: one errand of a thread."""
    unit, size = [], 0
    for piece in pieces:
        unit.append(piece)
        size += len(piece.text) + 100
        if size >= UNIT:
            yield unit
            unit, size = [], 0
    if unit:
        yield unit


def _encode(tokenizer: Tokenizer, unit: list[_Piece]) -> list[tuple[_Piece, np.ndarray]]:
    """Each piece with its ids. SentencePiece lets other threads run while it works."""
    encoded = []
    for piece in unit:
        ids = tokenizer.encode(piece.text, inside=not piece.first) if piece.text else []
        if piece.first:
            ids = [tokenizer.bos_id, *ids]
        if piece.last and tokenizer.eos_id != tokenizer.bos_id:  # it begins the next document
            ids.append(tokenizer.eos_id)
        encoded.append((piece, np.array(ids, np.int32)))
    return encoded


class _Stores:
    """The stores of both splits, written a segment, one shard of each, at a time.

    `progress.json` says what is in finished shards, so that a stopped run goes on after them.

    Attributes:
      done: its content. after: place (file, line) of the first document that is not in a finished
        shard; shards: entries of each store; text_bytes: UTF-8 bytes of the text in each; subsets:
        RedPajama subsets met; tokenizer: what gave the ids; num_skipped, skipped: documents left
        out, how many and the first of them; seconds: spent tokenizing, over all runs.
    """

    def __init__(self, folder: Path, tokenizer: Tokenizer, skipped: tuple[int, list[str]]):
        self._tokenizer = tokenizer
        self._paths = {split: folder / split for split in SPLITS}
        for path in self._paths.values():
            path.mkdir(exist_ok=True)
        self._writers: dict[str, store_lib.ShardWriter] = {}
        self._started = time.monotonic()
        self._progress_path = folder / "progress.json"
        if self._progress_path.exists():
            self.done = read_checksummed(self._progress_path)
        else:
            self.done = {
                "after": [0, 1],
                "shards": {split: [] for split in SPLITS},
                "text_bytes": dict.fromkeys(SPLITS, 0),
                "subsets": [],
                "tokenizer": tokenizer.fingerprint,
                "num_skipped": skipped[0],
                "skipped": skipped[1],
                "num_segments": 0,
                "seconds": 0.0,
            }

    def close(self) -> None:
        """Leaves nothing of an unfinished segment."""
        for writer in self._writers.values():
            writer.discard()

    def add(self, piece: _Piece, ids: np.ndarray) -> None:
        """Stores a piece, or counts what was left out."""
        done = self.done
        if piece.problem:
            done["num_skipped"] += 1
            done["skipped"] = [*done["skipped"], piece.problem][:LISTED]
            done["after"] = piece.after
            return
        if not self._writers:
            name, vocab_size = f"{done['num_segments']:05d}", self._tokenizer.vocab_size
            self._writers = {
                split: store_lib.ShardWriter(path, name, vocab_size)
                for split, path in self._paths.items()
            }
        split = "validation" if piece.validation else "train"
        self._writers[split].append(ids, new_document=piece.first)
        done["text_bytes"][split] += len(piece.text.encode())
        if piece.last:
            done["after"] = piece.after
            if sum(writer.num_tokens for writer in self._writers.values()) >= SHARD_TOKENS:
                self._close_segment()

    def _close_segment(self) -> None:
        for split, writer in self._writers.items():
            entry = writer.finish()
            self.done["shards"][split] += [entry] if entry else []
        self._writers.clear()
        self.done["num_segments"] += 1
        now = time.monotonic()
        self.done["seconds"] += now - self._started
        self._started = now
        write_checksummed(self._progress_path, self.done)

    def finish(self) -> dict:
        """Makes the shards two stores; the counts of each."""
        if self._writers:
            self._close_segment()
        counts = {}
        for split, path in self._paths.items():
            store_lib.write_index(path, self.done["shards"][split], self._tokenizer)
            store = store_lib.TokenStore(path)
            counts[split] = {
                "fingerprint": store.fingerprint,
                "documents": store.num_documents,
                "tokens": store.num_tokens,
                "text_bytes": self.done["text_bytes"][split],
            }
        return counts


def _tokenize(
    config: DataConfig, source: _Source, folder: Path, tokenizer: Tokenizer, show_progress: bool
) -> dict:
    """Writes both stores, and returns the counts for prepare.json."""
    num_threads = num_cpus()
    columns = (
        *rich.progress.Progress.get_default_columns(),
        rich.progress.DownloadColumn(),
        rich.progress.TransferSpeedColumn(),
    )
    console = rich.console.Console(stderr=True)
    with (
        contextlib.closing(_Stores(folder, tokenizer, source.skipped)) as stores,
        rich.progress.Progress(*columns, console=console, disable=not show_progress) as bar,
    ):
        done = stores.done
        first_file, first_line = done["after"]
        sizes = [file.size for file in source.files]
        task = bar.add_task("tokenizing", total=sum(sizes), completed=sum(sizes[:first_file]))
        advance = functools.partial(bar.advance, task)
        documents = source.read(start=(first_file, first_line), on_bytes=advance)
        units = _units(_pieces(documents, source.files, config, done["subsets"]))
        encode = functools.partial(_encode, tokenizer)
        for unit in map_ahead(encode, units, num_threads=num_threads, ahead=4 * num_threads):
            for piece, ids in unit:
                stores.add(piece, ids)
        counts = stores.finish()
    subsets: set[str] = {SUBSET_NAMES.get(name, name) for name in map(str, done["subsets"])}
    for name, _ in config.subset_shares:
        if SUBSET_NAMES.get(name, name) not in subsets:  # not worth throwing away what is tokenized
            names = ", ".join(sorted(subsets)) or "none"
            console.print(
                f"note: subset_shares names {name}, and no document is of it; the source's "
                f"subsets: {names}",
                highlight=False,
                soft_wrap=True,
            )
    if not counts["train"]["documents"]:
        raise ValueError(f"{config.path or config.source}: no training document in the source")
    return {
        **counts,
        "skipped": {"count": done["num_skipped"], "first": done["skipped"]},
        "seconds": round(done["seconds"], 3),
        "workers": num_threads,
    }


# Command line


def main(arguments: list[str] | None = None) -> int:
    """`python -m data.prepare`: exit status 0, or 2 after one line about what is wrong."""
    parser = Parser(
        prog="python -m data.prepare",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    # The options are fields of DataConfig; two that it needs decide nothing here.
    parser.set_defaults(**{field.name: field.default for field in dataclasses.fields(DataConfig)})
    parser.set_defaults(context_length=1, batch_size=1)
    add = parser.add_argument
    add(
        "--source",
        choices=("local", "jsonl", "redpajama", "retrieval"),
        help='local: the library of this Python. jsonl: one JSON object with a "text" a line, in '
        ".jsonl, .jsonl.gz or .jsonl.zst. redpajama: the published layout of "
        "RedPajama-Data-1T(-Sample). retrieval: a tokenizer only (default: %(default)s)",
    )
    add("--path", metavar="FILE_OR_DIR", help="where jsonl or redpajama files are")
    add(
        "--tokenizer",
        metavar="MODEL",
        help="a SentencePiece .model or a tokenizer.json; without, one is trained",
    )
    add(
        "--vocab-size",
        type=int,
        metavar="N",
        help="ids of a tokenizer trained here (default: %(default)s)",
    )
    add(
        "--on-bad-document",
        choices=("error", "skip"),
        help="stop at the first broken document, or leave such out and list them at the end "
        "(default: %(default)s; the same command with skip goes on where error stopped)",
    )
    add(
        "--subset-share",
        dest="subset_shares",
        action="append",
        default=[],
        type=_subset_share,
        metavar="NAME=SHARE",
        help="keep this share, in [0, 1], of a RedPajama subset's documents (may be repeated)",
    )
    add(
        "--out",
        dest="prepared_root",
        metavar="DIR",
        help="root of the prepared data (default: %(default)s)",
    )
    add(
        "--verify",
        nargs="?",
        const="",
        metavar="DIR",
        help="read prepared data, all under --out or one folder, and say what is damaged",
    )
    options = vars(parser.parse_args(arguments))
    options["subset_shares"] = tuple(options["subset_shares"])
    verified = options.pop("verify")
    if options["path"] and options["source"] in ("local", "retrieval"):
        parser.error(f"--source {options['source']} reads no --path; give --source jsonl|redpajama")
    try:
        if verified is not None:
            wrong = verify(place(verified or options["prepared_root"]))
            for each in wrong:
                print(f"{parser.prog}: error: {each}", file=sys.stderr)
            return 2 if wrong else 0
        folder = prepare(DataConfig(**options))
    except (ValueError, OSError) as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        print("stopped; the same command goes on after the last finished shard", file=sys.stderr)
        return 130
    _print_report(folder)
    return 0


def _subset_share(argument: str) -> tuple[str, float]:
    name, _, share = argument.partition("=")
    with contextlib.suppress(ValueError):
        if 0 <= float(share) <= 1:
            return name, float(share)
    raise argparse.ArgumentTypeError(
        f"{quoted(argument)} is not NAME=SHARE with a share in [0, 1], like github=0.5"
    )


def _print_report(folder: Path) -> None:
    report = read_report(folder)
    print(folder)
    if "seconds" not in report:
        return  # only a tokenizer was made
    for split in SPLITS:
        counts = report[split]
        print(
            f"  {split}: {counts['documents']:,} documents, {counts['tokens']:,} tokens, "
            f"{counts['text_bytes'] / max(1, counts['tokens']):.2f} bytes a token"
        )
    seconds = max(report["seconds"], 1e-9)
    documents = sum(report[split]["documents"] for split in SPLITS)
    tokens = sum(report[split]["tokens"] for split in SPLITS)
    print(
        f"  {seconds:.1f} s: {documents / seconds:,.0f} documents/s, "
        f"{tokens / seconds:,.0f} tokens/s ({report['workers']} threads)"
    )
    if report["skipped"]["count"]:
        print(f"  left out {report['skipped']['count']} documents:")
        for problem in report["skipped"]["first"]:
            print(f"    {problem}")


if __name__ == "__main__":
    sys.exit(main())
