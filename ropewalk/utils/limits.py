"""Limits on files that others may have written, and the readers of JSON, arrays and gzip.

A file beyond a limit raises ValueError before it takes memory or time. docs/reliability.md has the
table of the limits. The readers raise OSError for a file that is missing or cannot be opened.
"""

import io
import itertools
import json
import lzma
import math
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from ropewalk.utils.messages import one_line
from ropewalk.utils.paths import in_bucket

# Bytes of a JSON file, and of one line of others. A tokenizer.json of 262,144 pieces has 33 MB, and
# parsed JSON takes up to 24 times its bytes.
MAX_JSON = 2**26
MAX_NESTING = 100  # brackets that are open at once
MAX_PIECES = 2**24  # ids of a tokenizer.json; a list has one name for each


def check_file(path: Path, limit: float = math.inf) -> None:
    """Raise ValueError for a pipe, device or folder, or a file of more than `limit` bytes.

    Opening a pipe would wait forever for a writer.
    """
    if not in_bucket(path):
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{path} is not a regular file; put the file itself there")
        if status.st_size > limit:
            raise ValueError(f"{path} has {status.st_size:,} bytes (allowed: {limit:,})")


def read_bytes(path: Path) -> bytes:
    """Return the content of a regular file of at most MAX_JSON bytes."""
    check_file(path, MAX_JSON)
    return path.read_bytes()


def read_json(path: Path) -> Any:
    """Return the value of a JSON file; raise ValueError, without the path, if it is not JSON."""
    return parse_json(read_bytes(path))


def parse_json(content: bytes | str) -> Any:
    """Parse JSON text; raise ValueError for any error in it."""
    try:
        text = content.decode() if isinstance(content, bytes) else content
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error
    except ValueError as error:  # of UTF-8, of JSON, or an integer of thousands of digits
        raise ValueError(f"not JSON ({one_line(str(error), 80)})") from error
    if text.count("[") + text.count("{") > MAX_NESTING and _depth(text) > MAX_NESTING:
        raise ValueError(_TOO_DEEP)  # later recursion, such as `repr` or `json.dumps`, could fail
    return value


_TOO_DEEP = f"not JSON that can be read (nested more than {MAX_NESTING} deep)"


def _depth(text: str) -> int:
    """Return how deep the lists and objects of a JSON text are nested."""
    brackets = re.findall(r"[][{}]", re.sub(r'"[^"\\]*(?:\\.[^"\\]*)*"', "", text))
    return max(itertools.accumulate(1 if bracket in "[{" else -1 for bracket in brackets))


def read_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file; raise ValueError for one of more than MAX_JSON bytes."""
    check_file(path)
    with _open(path) as file:
        for number in itertools.count(1):
            line = file.readline(MAX_JSON + 1)
            if len(line) > MAX_JSON:
                raise ValueError(f"{path}:{number}: a line of more than {MAX_JSON:,} bytes")
            if not line:
                return
            yield line


def decompress_xz(content: bytes) -> bytes:
    """Decompress xz; raise ValueError for damage."""
    try:
        return lzma.decompress(content, lzma.FORMAT_XZ)
    except lzma.LZMAError as error:
        raise ValueError(f"damaged xz ({error})") from error


def open_array(path: Path) -> Any:
    """Return the numbers of a .npy file, memory-mapped on a disk; ValueError for damage."""
    import numpy as np  # late: most importers read no arrays

    check_file(path)
    try:
        # A map of the file is no longer than the file, whatever its header says.
        mode, file = (None, _open(path)) if in_bucket(path) else ("r", path)
        array = np.load(file, mmap_mode=mode, allow_pickle=False)
    except OSError:
        raise
    except Exception as error:  # numpy parses the header as Python: damage raises any exception
        raise ValueError(f"not an array ({one_line(str(error), 80)})") from error
    return _check_numbers(array)


def _check_numbers(array: Any) -> Any:
    dtype = getattr(array, "dtype", None)
    # An array without elements may have a side of any length.
    if dtype is None or dtype.kind not in "biuf" or any(n > array.size for n in array.shape):
        raise ValueError("not an array of numbers")
    return array


def _open(path: Path) -> IO[bytes]:
    # One request for an object of a bucket; fsspec's files have no readline(size).
    return io.BytesIO(path.read_bytes()) if in_bucket(path) else path.open("rb")
