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
from ropewalk.utils.paths import as_path
from ropewalk.utils.progress import byte_progress
from ropewalk.utils.threads import map_ahead, num_cpus

READ_QUIETLY = 1 << 28  # bytes that are read without a progress bar
_SAVE_EVERY = 60  # seconds
# An edit within the resolution of a file system's clock changes no time: a file that has just
# changed is read again the next time.
_SETTLED = 2_000_000_000  # ns

Stamps = dict[str, list[int]]  # size, inode and times of files, by absolute path
Digests = dict[str, str]  # sha256 of files, by absolute path


def identities(source: Source) -> list[list]:
    """Return name, sha256 and split of each input file of a source.

    Text that is generated has no file; its size stands for the sha256.
    """
    digests = content_digests(source.inputs, as_path(source.prepared_root))
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
    paths = [as_path(file.path).absolute() for file in files]
    stamps = {
        str(path): file_stamp(path)
        for path, file in zip(paths, files, strict=True)
        if not file.sha256 and path.is_file()
    }
    known = _load(root, stamps)
    unknown = stamps.keys() - known.keys()
    with contextlib.ExitStack() as stack:
        if sum(stamps[path][0] for path in unknown) > READ_QUIETLY:
            with contextlib.suppress(OSError, ValueError):  # not writable: nobody waits
                root.parent.mkdir(parents=True, exist_ok=True)
                stack.enter_context(lock(_file(root).with_suffix(".lock")))
                known = _load(root, stamps)  # another process may have read them meanwhile
        if unread := {path: stamps[path] for path in stamps if path not in known}:
            known |= _read_all(unread, root)
    names = map(str, paths)
    return [file.sha256 or known.get(name, "") for name, file in zip(names, files, strict=True)]


def file_stamp(path: Path) -> list[int]:
    """Return size, inode, and times of modification and change of a file."""
    status = path.stat()
    return [status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns]


def _read_all(stamps: Stamps, root: Path) -> Digests:
    """Read files in threads, remember their digests in `root`, and return them."""
    total = sum(size for size, *_ in stamps.values())
    threads = num_cpus()
    digests: Digests = {}
    saved, settled_before = time.monotonic(), time.time_ns() - _SETTLED
    settled = {path: stamp for path, stamp in stamps.items() if max(stamp[2:]) < settled_before}
    disable = total <= READ_QUIETLY
    with byte_progress("reading", total, transient=True, disable=disable) as on_bytes:
        read = functools.partial(_sha256, on_bytes=on_bytes)
        results = map_ahead(read, stamps, num_threads=threads, ahead=2 * threads)
        try:
            for path, digest in zip(stamps, results, strict=True):
                digests[path] = digest
                if time.monotonic() - saved > _SAVE_EVERY:  # a killed process continues from here
                    _save(root, settled, digests)
                    saved = time.monotonic()
        finally:
            _save(root, settled, digests)
    return digests


def _file(root: Path) -> Path:
    root = root.absolute()
    return root.with_name(f"{root.name}.content.json")


def _saved(root: Path) -> dict[str, tuple[list[int], str]]:
    """Return stamp and digest of each file that was read before."""
    with contextlib.suppress(OSError, ValueError):  # damaged or missing: every file is read
        return read_manifest(_file(root))["digests"]
    return {}


def _load(root: Path, stamps: Stamps) -> Digests:
    """Return the known digests of the files that have not changed since."""
    saved = _saved(root).items()
    return {path: digest for path, (stamp, digest) in saved if stamp == stamps.get(path)}


def _save(root: Path, stamps: Stamps, digests: Digests) -> None:
    """Add digests to the file; nothing happens without permission to write."""
    if new := {path: (stamps[path], digests[path]) for path in stamps.keys() & digests}:
        with contextlib.suppress(OSError):
            content = seal({"digests": _saved(root) | new})
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
