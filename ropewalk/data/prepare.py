"""Command and function that turn text into tokens, once for all runs that use the text.

    runs/data.content.json        digests of input files, so that unchanged files are read once
    runs/data/jsonl-3f9c.../      the name is a hash of the settings and of the content of all files
      tokenizer.model (or tokenizer.json)
      train/  validation/         token stores (data.store)
      prepare.json                settings and counts; written last, so it marks the folder finished
      progress.json               finished shards; a stopped run continues after them
      verified.json               of a large folder: sizes and times of its files when last verified

Every document is stored as [BOS] + ids + [EOS]. Files and folders named validation, test, dev, ...
go to the validation split (`data.files` has the rules). Without such files, a hash of the text
decides: one document in 100, or some if none; of `local`, which is small, one in 4. Equal texts
go to the same split. A plain text is one document: of fewer than ten files the last tenth of each
is held out, of more one file in twenty. If a row (`data.context_length`) needs more held-out text,
more documents are held out by hash, in a folder of its own.

train.py prepares data when necessary. This command does it beforehand; it can be stopped and
started again:

    ropewalk prepare                                        the standard library's source
    ropewalk prepare --source files --path DIR --vocab-size 4096
    ropewalk prepare --source jsonl --path DIR --tokenizer llama/tokenizer.model
    ropewalk prepare --source redpajama --path DIR          the files as published

A run finds the result if its data.source, data.path, data.tokenizer or data.vocab_size and
data.prepared_root (here --out) are the same, and verifies it once (`data.verify`). --verify reads
the data even if it was verified before, prints the damaged files and exits with status 2:

    ropewalk prepare --verify                               every folder under --out
    ropewalk prepare --verify runs/data/jsonl-3f9c...
"""

import argparse
import contextlib
import dataclasses
import hashlib
import inspect
import json
import sys
from pathlib import Path
from typing import Any

from ropewalk.data import domains, sources, tokenizing
from ropewalk.data import tokenizer as tokenizer_lib
from ropewalk.data.config import DataConfig
from ropewalk.data.content import identities
from ropewalk.data.files import describe_left_out, find_unread_parts, shorten
from ropewalk.data.source import SKIP_ADVICE, Source
from ropewalk.data.tokenizer import Tokenizer
from ropewalk.data.verify import SPLITS, check_intact, verify
from ropewalk.utils.command_line import Parser, exit_with
from ropewalk.utils.files import check_writable
from ropewalk.utils.locks import lock
from ropewalk.utils.manifest import read_manifest
from ropewalk.utils.messages import counted, print_note, printable, quoted
from ropewalk.utils.paths import as_path, copy, in_bucket

VERSION = 3  # of the rules that make ids from text: a new version prepares everything again
ON_DISK = "runs/data"  # where data for a bucket is prepared


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """A preparation: what is read, and what makes ids of it. No document is read yet.

    Attributes:
      config: names the text, the tokenizer, and the root of the result.
      source: the documents.
      tokenizer: that of `data.tokenizer`; None: one is trained.
    """

    config: DataConfig
    source: Source
    tokenizer: Tokenizer | None

    def describe(self) -> list[str]:
        """Return lines about the text that is read."""
        if self.source.needs_path:
            return [f"data.path={self.config.path}", *describe_files(self.source)]
        if self.config.path is not None:
            others = " or ".join(sources.reading_path())
            return [f"does not read data.path={self.config.path}; {others} would"]
        return ["needs no data.path", *describe_files(self.source)]

    def settings(self, source: Source) -> dict[str, Any]:
        """Return what decides the ids, and with it the folder; the content of all files is read."""
        config, tokenizer = self.config, self.tokenizer
        return {
            "version": VERSION,
            "source": config.source,
            "files": identities(source),
            "subset_shares": sorted(config.subset_shares),
            "tokenizer": tokenizer.fingerprint if tokenizer else None,
            "vocab_size": None if tokenizer else config.vocab_size,
            "shard_tokens": tokenizing.SHARD_TOKENS,
            **source.identity(),
            **domains.settings(config),
            # The others have no entry, as before long texts were sampled whole.
            **({"sample": "whole files"} if source.has_whole_files and not tokenizer else {}),
        }

    def write(self, *, show_files: bool = False, create: bool = True) -> Path:
        """Prepare the text and return its folder; see `prepare`."""
        config, source = self.config, self.source
        root = as_path(config.prepared_root)
        if create:
            check_root(config)
        if in_bucket(root) or not create:  # digests and copies are written to a disk
            source = dataclasses.replace(source, prepared_root=ON_DISK)
        settings = self.settings(source)
        _note_copies(source, settings["files"])
        folder = root / _folder_name(settings)
        is_new = create and not (folder / "prepare.json").exists()
        if show_files or is_new:
            print(
                *(f"{line}\n" for line in describe_files(source)), sep="", end="", file=sys.stderr
            )
        else:  # files may have come since
            note_unread(source)
        self._write(root, settings, source, create=create)
        if source.has_text and _lacks_a_row(folder, config, source):
            wanted = config.context_length + 1
            text = f"the held-out text has fewer than {wanted:,} ids (a row); more is held out"
            print_note((folder, wanted), f"{config.path or config.source}: {text}")
            settings["held_out_ids"] = wanted
            folder = root / _folder_name(settings)
            self._write(root, settings, source, create=create)
        _check_documents(folder, config)
        return folder

    def _write(self, root: Path, settings: dict[str, Any], source: Source, *, create: bool) -> None:
        """Write the folder of these settings in a root if it is missing, and verify it."""
        folder = root / _folder_name(settings)
        report_path = folder / "prepare.json"
        # A finished folder needs no lock: a reader may lack permission to write.
        if not report_path.exists():
            if not create:
                raise ValueError(
                    f"it is not prepared in {quoted(str(root))}, and evaluations write in no "
                    f"folder that a run names but {ON_DISK}; if you trust it, run ropewalk prepare "
                    "with --out"
                )
            check_writable(root, _OTHER_ROOT)
            if in_bucket(root):  # locks and renames need a disk; a bucket gets the finished folder
                self._write(Path(ON_DISK), settings, source, create=True)
                copy(Path(ON_DISK) / folder.name, folder, last="prepare.json")
            else:
                folder.mkdir(parents=True, exist_ok=True)
                with lock(folder / ".lock"):
                    if not report_path.exists():  # another process may have finished meanwhile
                        tokenizing.write_prepared(folder, settings, source, self.tokenizer)
        check_intact(folder)
        if _folder_name(read_manifest(report_path)["settings"]) != folder.name:
            raise ValueError(
                f"{folder} has been renamed: it holds other text, or was made with other "
                "settings; delete it, and it is prepared anew"
            )


def prepare(config: DataConfig, *, show_files: bool = False, create: bool = True) -> Path:
    """Return the folder with the tokens of `config`'s text; write it first if it is missing.

    Prints which files are read if it writes the folder, or with `show_files`. A stopped run
    continues after its last finished shard and ends with the same bytes. A source without text has
    no stores, only a tokenizer.

    Args:
      create: whether a missing folder may be written where `config` says. False for the config of
        a run that somebody else may have made: its text could go to any folder or bucket.

    Raises:
      ValueError: on bad input, as `FILE:LINE: problem`; if the folder is damaged; if it is missing
        and may not be created.
    """
    return make_plan(config).write(show_files=show_files, create=create)


def _folder_name(settings: dict[str, Any]) -> str:
    identity = json.dumps(settings)
    return f"{settings['source']}-{hashlib.sha256(identity.encode()).hexdigest()[:12]}"


def _lacks_a_row(folder: Path, config: DataConfig, source: Source) -> bool:
    """Return whether a row of validation lacks text, and the text has enough for one."""
    report = read_manifest(folder / "prepare.json")
    held_out = report["validation"]["tokens"]
    is_enough = held_out + report["train"]["tokens"] >= 2 * (config.context_length + 1)
    is_short = held_out <= config.context_length and is_enough
    return is_short and not tokenizing.names_held_out(source)


_MAX_REPEATED = 0.05  # part of the documents; any text has some
_OTHER_ROOT = "name another data.prepared_root (of data.prepare: --out)"


def check_root(config: DataConfig) -> None:
    """Raise ValueError if nothing is prepared in the root, and nothing can be written there."""
    root = as_path(config.prepared_root)
    if not list(root.glob(f"{config.source}-*")):
        check_writable(root, _OTHER_ROOT)


def _note_copies(source: Source, identities: list[list]) -> None:
    """Print a note if files have the same content. It is printed once in a process."""
    first: dict[str, tuple[str, bool]] = {}
    pairs: dict[bool, tuple[str, str]] = {}  # whether one of them is held out
    for file, (name, content, held_out) in zip(source.inputs, identities, strict=True):
        other, other_is_held_out = first.setdefault(content, (name, held_out))
        if other != name and file.size and source.needs_path:
            pairs[held_out != other_is_held_out] = other, name
    for is_trained_on, names in sorted(pairs.items())[-1:]:
        effect = "held-out text is trained on" if is_trained_on else "it counts twice"
        alike = " and ".join(map(quoted, names))
        print_note(source.path, f"{alike} have the same content: {effect}")


def _check_documents(folder: Path, config: DataConfig) -> None:
    """Raise ValueError for bad documents, or print how many are left out; note if none is held out.

    Notes are printed once in a process.
    """
    report = read_manifest(folder / "prepare.json")
    if "skipped" not in report:
        return  # no text, only a tokenizer
    skipped = report["skipped"]
    if skipped["count"] and config.on_bad_document == "error":
        raise ValueError(f"{skipped['first'][0]} (and {skipped['count'] - 1} more); {SKIP_ADVICE}")
    if skipped["count"]:
        first = printable(skipped["first"][0])
        print_note(folder, f"{_count_left_out(skipped)}; the first: {first}")
    for name in report.get("missing_subsets", ()):
        print_note((folder, name), f"data.subset_shares: no document belongs to {quoted(name)}")
    repeated, leaked = report.get("repeated", (0, 0))
    if repeated > _MAX_REPEATED:
        text = f"{100 * repeated:.2g}% of the documents of training repeat another one of them"
        print_note(folder, f"{text}, perhaps of another file")
    if leaked:
        print_note(folder, f"{100 * leaked:.2g}% of the held-out documents are trained on")
    if not report["validation"]["documents"]:
        what = f"of {counted(report['train']['documents'], 'documents')} none is held out"
        fix = "no loss of validation, no perplexity; put some into a file validation.jsonl"
        print_note(folder, f"{what}: {fix}")


def note_unread(source: Source) -> None:
    """Print a note about the files at the source's path that are not read, once in a process."""
    for line in _describe_unread(source):
        print_note(source.path, line)


def _count_left_out(skipped: dict[str, Any]) -> str:
    damaged = f" or damaged parts of files ({skipped['damaged_bytes']:,} bytes in the parts)"
    documents = counted(skipped["count"], "documents")
    return f"left out {documents}{damaged * bool(skipped['damaged_bytes'])}"


def describe_files(source: Source) -> list[str]:
    """Return lines about the files of each split, and about the files that are left out."""
    if not source.has_text:
        return []
    files, lines = source.inputs, []
    for split in SPLITS:
        chosen = [file for file in files if file.validation == (split == "validation")]
        if chosen:
            size = sum(file.size for file in chosen)
            names = shorten([file.name for file in chosen])
            lines.append(f"{split}: {counted(len(chosen), 'files')}, {size:,} bytes: {names}")
    lines += _describe_unread(source)
    if not any(file.validation for file in files):
        lines.append(f"validation: no file; {source.held_out_rule()}")
    return lines


def _describe_unread(source: Source) -> list[str]:
    unread = find_unread_parts(file.name for file in source.inputs)
    lines = [f"not read: {shorten(unread)}, parts of the same text"] if unread else []
    return lines + describe_left_out(source.left_out)


def make_plan(config: DataConfig) -> Plan:
    """Return the plan of a config, after checks that read no document.

    Raises:
      ValueError: if the source needs `data.path`, or has no files; for bad `subset_shares` or
        `weights`, a bad tokenizer or `vocab_size`.
    """
    source_class = sources.source_class(config.source)
    if source_class.needs_path and config.path is None:
        raise ValueError(
            f"data.source={config.source} needs data.path=FILE_OR_FOLDER; docs/own_text.md says "
            "where the corpora come from"
        )
    names = ("path", "text_field", "subset_shares", "on_bad_document", "prepared_root")
    source = source_class(**{name: getattr(config, name) for name in names})
    source.check()
    domains.check(config, source)
    if config.tokenizer is None:
        tokenizer_lib.check_vocab_size(config.vocab_size)
        return Plan(config=config, source=source, tokenizer=None)
    tokenizer = Tokenizer(config.tokenizer)
    if changes := source.has_text and tokenizer.describe_changes():
        print_note(tokenizer, f"data.tokenizer={config.tokenizer} {changes}")
    return Plan(config=config, source=source, tokenizer=tokenizer)


def main(arguments: list[str] | None = None) -> int:
    """Run `ropewalk prepare`; return exit status 0, or 2 after one line about the error."""
    parser = _parser()
    options = vars(parser.parse_args(arguments))
    for name in ("subset_shares", "weights"):
        options[name] = tuple(options[name])
    if options["long_tokens"]:
        options["long_fraction"] = 1.0  # any one: it decides no id
    verified = options.pop("verify")
    if options["tokenizer"] and options["vocab_size"] != parser.get_default("vocab_size"):
        parser.error("--vocab-size is that of a tokenizer trained here; leave out --tokenizer")
    if options["path"] and not sources.source_class(options["source"]).needs_path:
        readers = "|".join(sources.reading_path())
        parser.error(f"--source {options['source']} reads no --path; give --source {readers}")
    with parser.refusing(ValueError, OSError):
        if verified is not None:
            messages = verify(as_path(verified or options["prepared_root"]))
            for message in messages:
                print(f"{parser.prog}: error: {message}", file=sys.stderr)
            return 2 if messages else 0
        _print_report(prepare(DataConfig(**options), show_files=True))
    return 0


def _parser() -> Parser:
    parser = Parser(description=__doc__)
    # The options are fields of DataConfig; context_length and batch_size are required but unused.
    parser.set_defaults(**{field.name: field.default for field in dataclasses.fields(DataConfig)})
    parser.set_defaults(context_length=2, batch_size=1)
    default = " (default: %(default)s)"
    docs = {name: inspect.getdoc(sources.source_class(name)) or "" for name in sources.names()}
    texts = " ".join(f"{name}: {text.splitlines()[0]}" for name, text in docs.items())
    add = parser.add_argument
    add("--source", choices=[*docs], help=texts + default)
    add("--path", metavar="FILE_OR_DIR", help=f"files of {' or '.join(sources.reading_path())}")
    text = "field of a JSON line, or column of a Parquet file, that holds the text" + default
    add("--text-field", metavar="NAME", help=text)
    text = "a SentencePiece .model or a tokenizer.json (default: train one)"
    add("--tokenizer", metavar="MODEL", help=text)
    add("--vocab-size", type=int, metavar="N", help="size of a tokenizer trained here" + default)
    text = "error: stop at the first bad document; skip: leave them out and list them" + default
    add("--on-bad-document", choices=("error", "skip"), help=text)
    share = "share, in [0, 1], of a RedPajama subset's documents to keep (may be repeated)"
    weight = "weight of a corpus, as in data.weights (may be repeated)"
    named: dict[str, Any] = {"action": "append", "type": _named_number, "metavar": "NAME=NUMBER"}
    add("--subset-share", dest="subset_shares", default=[], help=share, **named)
    add("--weight", dest="weights", default=[], help=weight, **named)
    text = "store documents of N tokens or more apart, for runs with data.long_fraction"
    add("--long-tokens", type=int, metavar="N", help=text)
    add("--out", dest="prepared_root", metavar="DIR", help="root of the prepared data" + default)
    text = "read prepared data (all under --out, or one folder) and list damaged files"
    add("--verify", nargs="?", const="", metavar="DIR", help=text)
    return parser


def _named_number(argument: str) -> tuple[str, float]:
    name, _, number = argument.partition("=")
    with contextlib.suppress(ValueError):
        return name, float(number)
    raise argparse.ArgumentTypeError(f"{quoted(argument)} is not NAME=NUMBER, like books=0.5")


def _print_report(folder: Path) -> None:
    print(folder)
    report = read_manifest(folder / "prepare.json")
    for split in SPLITS:
        if counts := report.get(split):  # none without text
            documents, tokens = counted(counts["documents"], "documents"), counts["tokens"]
            share = counts["text_bytes"] / max(1, tokens)
            print(f"  {split}: {documents}, {tokens:,} tokens, {share:.2f} bytes per token")
    skipped = report.get("skipped", {"count": 0})
    if skipped["count"]:
        print(f"  {_count_left_out(skipped)}:")
        print(*(f"    {printable(problem)}" for problem in skipped["first"]), sep="\n")


if __name__ == "__main__":
    exit_with(main, "the same command continues after the last finished shard")
