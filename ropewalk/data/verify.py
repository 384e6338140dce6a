"""Verification of prepared folders.

Every process that trains or evaluates verifies a folder once (`check_intact`). Small folders, which
take half a second, are read every time. For a large folder, `verified.json` records sizes, inodes
and times of the verified files, so that only a change leads to another reading.
`ropewalk prepare --verify` reads everything.
"""

import contextlib
import functools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from ropewalk.data.content import file_stamp
from ropewalk.data.source import OnBytes, ignore_bytes
from ropewalk.data.tokenizer import Tokenizer, file_in
from ropewalk.utils.files import write_atomically
from ropewalk.utils.manifest import find_damages, read_manifest
from ropewalk.utils.progress import byte_progress

SPLITS = ("train", "validation")
MANIFESTS = ("prepare.json", "progress.json")  # of a finished folder, and of an unfinished one
READ_ALWAYS = 1 << 28  # bytes; larger folders are read once

Stamps = tuple[tuple[str, tuple[int, ...]], ...]  # name and `file_stamp` of each file


def read_tokenizer(folder: Path) -> Tokenizer:
    """Return the tokenizer of a prepared folder, finished or not.

    Raises:
      ValueError: if the tokenizer is missing, or it or its recorded digest is damaged.
    """
    manifests = (folder / name for name in MANIFESTS)
    record = next((read_manifest(path) for path in manifests if path.exists()), {})
    return Tokenizer(file_in(folder), sha256=record.get("tokenizer"))


def damages(folder: Path, on_bytes: OnBytes = ignore_bytes) -> Iterator[str]:
    """Yield one sentence per damaged file of a prepared folder; read all of it.

    Args:
      folder: finished, or not: then only the files from which `prepare` continues are read.
      on_bytes: called with numbers of bytes read, by several threads.
    """
    finished, unfinished = (folder / name for name in MANIFESTS)
    stores = sorted(folder.glob("*/store.json"))
    for manifest in [finished, *stores] if finished.exists() else [unfinished]:
        yield from find_damages(manifest, on_bytes)


def check_intact(folder: Path) -> None:
    """Verify a finished folder, once per process unless its files change.

    Raises:
      ValueError: at the first damaged file.
    """
    _check_intact(folder.resolve(), folder, _stamps(folder))


@functools.lru_cache
def _check_intact(real: Path, folder: Path, stamps: Stamps) -> None:
    is_large = sum(size for _, (size, *_) in stamps) > READ_ALWAYS
    verified, content = real / "verified.json", json.dumps(stamps).encode()
    if is_large and verified.exists() and verified.read_bytes() == content:
        return
    with _progress([folder]) as on_bytes:
        for damage in damages(folder, on_bytes):
            raise ValueError(_advise(folder, damage))
    if is_large:
        with contextlib.suppress(OSError):  # without permission to write, it is read every time
            write_atomically(verified, content)


def _advise(folder: Path, damage: str) -> str:
    return f"{damage}; delete {folder}, and it is prepared anew"


def _stamps(folder: Path) -> Stamps:
    paths = [folder / "prepare.json", file_in(folder)]
    paths += sorted(folder.glob("*/*"))
    existing = filter(Path.exists, paths)
    return tuple((str(p.relative_to(folder)), tuple(file_stamp(p))) for p in existing)


def _progress(folders: Iterable[Path]) -> contextlib.AbstractContextManager[OnBytes]:
    """Return a bar over the bytes of ids in some folders, shown only if they are many."""
    paths = [path for folder in folders for path in folder.glob("*/*.array_record")]
    total = sum(path.stat().st_size for path in paths)
    return byte_progress("verifying", total, transient=True, disable=total <= READ_ALWAYS)


def verify(root: Path) -> list[str]:
    """Print the state of each intact prepared folder, and return messages about damaged files.

    Args:
      root: a prepared folder, or a folder of prepared folders.

    Raises:
      ValueError: if there is no prepared folder.
    """
    folders = [root] if any((root / name).exists() for name in MANIFESTS) else []
    folders = folders or sorted({path.parent for n in MANIFESTS for path in root.glob(f"*/{n}")})
    if not folders:
        raise ValueError(f"{root}: no prepared data there")
    messages = []
    with _progress(folders) as on_bytes:
        for folder in folders:
            damaged = [_advise(folder, damage) for damage in damages(folder, on_bytes)]
            messages += damaged
            if not damaged:
                is_finished = (folder / "prepare.json").exists()
                state = "intact" if is_finished else "not finished; the same command continues"
                print(f"{folder}: {state}")
    return messages
