"""Digests of the content of input files, each file read once.

`ROOT.content.json`, beside the root of the prepared data, remembers the digest of a file with its
size, inode, and times of modification and change. A file with other values is read again; the time
of change shows edits that restore the time of modification.
"""

import contextlib
import functools
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

from ropewalk.data.source import InputFile, OnBytes, Source
from ropewalk.utils.errors import UnreachableError
from ropewalk.utils.files import write_atomically
from ropewalk.utils.locks import lock
from ropewalk.utils.manifest import hash_file, read_manifest, seal
from ropewalk.utils.paths import as_path, in_bucket
from ropewalk.utils.progress import byte_progress
from ropewalk.utils.threads import map_ahead, num_cpus

READ_QUIETLY = 1 << 28  # bytes that are read without a progress bar
_SAVE_EVERY = 60  # seconds
# An edit within the resolution of a file system's clock changes no time: a file that has just
# changed is read again the next time.
_SETTLED = 2_000_000_000  # ns

Stamps = dict[str, list[int]]  # size, inode and times of files, by absolute path
Digests = dict[str, tuple[list[int], str]]  # with the sha256


def identities(source: Source) -> list[list]:
    """Return name, sha256 and split of each input file of a source.

    Text that is generated has no file; its size stands for the sha256.
    """
    root = as_path(source.prepared_root)
    digests = content_digests(source.inputs, root)
    return [
        [file.name, digest or file.size, file.validation]
        for file, digest in zip(source.inputs, digests, strict=True)
    ]


def content_digests(files: Sequence[InputFile], root: Path) -> list[str]:
    """Return the sha256 of each file, in hex; "" for a path that is no file, as generated text has.

    Args:
      files: the files.
      root: root of the prepared data; the digests are kept beside it.

    Raises:
      ValueError: if a file cannot be read.
    """
    paths = [str(as_path(file.path).absolute()) for file in files]
    known = _load(root)
    if unknown := _unknown(paths, files, known):
        with contextlib.ExitStack() as stack:
            if sum(size for size, *_ in unknown.values()) > READ_QUIETLY:
                with contextlib.suppress(OSError, ValueError):  # not writable: nobody waits
                    root.parent.mkdir(parents=True, exist_ok=True)
                    stack.enter_context(lock(_file(root).with_suffix(".lock")))
                    known = _load(root)  # another process of the run has read the files meanwhile
                    unknown = _unknown(paths, files, known)
            known |= _read_all(unknown, root)
    return [
        file.sha256 or known.get(path, ([], ""))[1] for path, file in zip(paths, files, strict=True)
    ]


def _unknown(paths: Sequence[str], files: Sequence[InputFile], known: Digests) -> Stamps:
    """Return the stamps of the files that have to be read."""
    unknown = {}
    for name, file in zip(paths, files, strict=True):
        path = as_path(file.path)
        if file.sha256 or not path.is_file():
            continue
        status = path.stat()
        times = status.st_mtime_ns, status.st_ctime_ns
        if in_bucket(path):
            times = (int(status.st_mtime * 1e9),)
        stamp = [status.st_size, status.st_ino, *times]
        if name not in known or list(known[name][0]) != stamp:
            unknown[name] = stamp
    return unknown


def _read_all(stamps: Stamps, root: Path) -> Digests:
    """Read files in threads, remember their digests in `root`, and return them."""
    total = sum(size for size, *_ in stamps.values())
    is_quiet = total <= READ_QUIETLY
    threads = num_cpus()
    digests: Digests = {}
    settled: Digests = {}
    saved, settled_before = time.monotonic(), time.time_ns() - _SETTLED
    with byte_progress("reading", total, transient=True, disable=is_quiet) as on_bytes:
        read = functools.partial(_sha256, on_bytes=on_bytes)
        results = map_ahead(read, stamps, num_threads=threads, ahead=2 * threads)
        try:
            for (path, stamp), digest in zip(stamps.items(), results, strict=True):
                digests[path] = (stamp, digest)
                if max(stamp[2:]) < settled_before:
                    settled[path] = digests[path]
                if time.monotonic() - saved > _SAVE_EVERY:  # a killed process continues from here
                    _save(root, settled)
                    saved = time.monotonic()
        finally:
            _save(root, settled)
    return digests


def _file(root: Path) -> Path:
    root = root.absolute()
    return root.with_name(f"{root.name}.content.json")


def _load(root: Path) -> Digests:
    with contextlib.suppress(OSError, ValueError):  # damaged or missing: every file is read
        return read_manifest(_file(root))["digests"]
    return {}


def _save(root: Path, digests: Digests) -> None:
    """Add digests to the file; nothing happens without permission to write."""
    if digests:
        with contextlib.suppress(OSError):
            content = seal({"digests": _load(root) | digests})
            _file(root).parent.mkdir(parents=True, exist_ok=True)
            write_atomically(_file(root), json.dumps(content))


def _sha256(name: str, on_bytes: OnBytes) -> str:
    try:
        return hash_file(as_path(name), on_bytes)
    except UnreachableError:
        raise
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise ValueError(f"{name}: cannot be read ({reason})") from None
