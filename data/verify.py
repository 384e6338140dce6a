"""Whether a prepared folder is as it was written.

Every process that trains or evaluates asks once (`check_intact`). What is read in half a second it
reads each time; of more it is remembered, in `verified.json`, which sizes and modification times
the files had when they were found whole. `python -m data.prepare --verify` reads everything.
"""

import contextlib
import functools
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import rich.console
import rich.progress

from data.files import DamagedError, is_checksummed, read_checksummed, write_atomically
from data.store import TokenStore
from data.tokenizer import FILE_NAMES, Tokenizer, file_in

SPLITS = ("train", "validation")
EACH_TIME = 1 << 28  # bytes at most that are read each time

Stamp = tuple[tuple[str, int, int], ...]  # name, bytes and time of modification (ns) of each file


def read_report(folder: Path) -> dict[str, Any]:
    """`prepare.json` of a prepared folder.

    Raises:
      FileNotFoundError: if the folder is not finished.
      DamagedError: if it is not as it was written.
    """
    path = folder / "prepare.json"
    report = read_checksummed(path)
    # One without a digest may say anything.
    settings, skipped = report.get("settings"), report.get("skipped", {"count": 0})
    named = isinstance(settings, dict) and "tokenizer" in settings
    if not named or not isinstance(skipped, dict) or not isinstance(skipped.get("count"), int):
        raise DamagedError(f"{path}: damaged: not what preparing data leaves")
    return report


def read_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a prepared folder, finished or begun.

    Raises:
      ValueError: if it is missing, or is not, or what records it is not, as it was written.
    """
    recorded = None
    if (folder / "prepare.json").exists():
        report = read_report(folder)
        recorded = report.get("tokenizer", report["settings"]["tokenizer"])
    elif (folder / "progress.json").exists():
        recorded = read_checksummed(folder / "progress.json").get("tokenizer")
    return Tokenizer(file_in(folder), sha256=recorded)


def damages(folder: Path, on_bytes: Callable[[int], None] = lambda count: None) -> Iterator[str]:
    """What of a prepared folder is not as it was written, a sentence a file; reads all of it.

    Args:
      folder: finished, or begun: of that, what it goes on from.
      on_bytes: told how many bytes were read, by several threads.
    """
    try:
        tokenizer = read_tokenizer(folder)
        if not (folder / "prepare.json").exists():
            return
        report = read_report(folder)
    except ValueError as error:
        yield getattr(error, "what", str(error))
        return
    for split in [split for split in SPLITS if split in report]:
        try:
            store = TokenStore(folder / split)
        except ValueError as error:
            yield getattr(error, "what", str(error))
            continue
        yield from store.damages(tokenizer, on_bytes)
        said = {"fingerprint": store.fingerprint, "documents": store.num_documents}
        said["tokens"] = store.num_tokens
        if any(report[split].get(name) != value for name, value in said.items()):
            yield f"{folder / 'prepare.json'}: damaged: it counts another {split} store"


def check_intact(folder: Path, *, show_progress: bool = True) -> None:
    """Reads a finished folder, or remembers that it was whole, once a process and state of it.

    Raises:
      ValueError: at the first file that is not as it was written.
    """
    _check_intact(folder.resolve(), folder, _stamp(folder), show_progress)


@functools.lru_cache
def _check_intact(whole: Path, folder: Path, stamp: Stamp, show_progress: bool) -> None:
    is_large = sum(size for _, size, _ in stamp) > EACH_TIME
    remembered, stamped = whole / "verified.json", json.dumps(stamp).encode()
    if is_large and remembered.exists() and remembered.read_bytes() == stamped:
        return
    with _progress([folder], disable=not show_progress) as on_bytes:
        for damage in damages(folder, on_bytes):
            raise ValueError(f"{damage}; delete {folder}, and it is prepared anew")
    if is_large:
        with contextlib.suppress(OSError):  # a folder that cannot be written to is read each time
            write_atomically(remembered, stamped)


def _stamp(folder: Path) -> Stamp:
    paths = [folder / name for name in ("prepare.json", *FILE_NAMES)]
    paths += [path for split in SPLITS for path in sorted((folder / split).glob("*"))]
    found = [(path, path.stat()) for path in paths if path.exists()]
    return tuple((str(p.relative_to(folder)), s.st_size, s.st_mtime_ns) for p, s in found)


@contextlib.contextmanager
def _progress(folders: Iterable[Path], *, disable: bool = False) -> Iterator[Callable[[int], None]]:
    """A bar of the bytes of ids read of some folders, where they are many; gives what is told."""
    paths = [path for folder in folders for path in folder.glob("*/*.array_record")]
    total = sum(path.stat().st_size for path in paths)
    columns = (
        *rich.progress.Progress.get_default_columns(),
        rich.progress.DownloadColumn(),
        rich.progress.TransferSpeedColumn(),
    )
    console = rich.console.Console(stderr=True)
    disable = disable or total <= EACH_TIME
    shown = rich.progress.Progress(*columns, console=console, transient=True, disable=disable)
    with shown as bar:
        task = bar.add_task("verifying", total=total)
        yield functools.partial(bar.advance, task)


def verify(root: Path) -> list[str]:
    """Prints what becomes of each prepared folder at `root`, and returns what is wrong.

    Args:
      root: a prepared folder, or one that holds prepared folders.

    Raises:
      ValueError: if there is neither.
    """
    marks = ("prepare.json", "progress.json")
    folders = [root] if any((root / mark).exists() for mark in marks) else []
    folders = folders or sorted({path.parent for mark in marks for path in root.glob(f"*/{mark}")})
    if not folders:
        raise ValueError(f"{root}: no prepared data there")
    found = []
    with _progress(folders) as on_bytes:
        for folder in folders:
            wrong = list(damages(folder, on_bytes))
            found += [f"{each}; delete {folder}, and it is prepared anew" for each in wrong]
            if not wrong:
                print(f"{folder}: {_whole(folder)}")
    return found


def _whole(folder: Path) -> str:
    if not (folder / "prepare.json").exists():
        return "not finished; the same command goes on"
    if is_checksummed(folder / "prepare.json"):
        return "whole"
    # Made before files had digests; its stores are known by what they hold.
    if not any((folder / split).exists() for split in SPLITS):
        return "unverified: made before tokenizers had digests"
    return "whole; unverified: bytes of text and documents left out, as prepare.json counts them"
