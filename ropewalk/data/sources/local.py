"""Source code of Python's standard library: real text on any machine."""

import functools
import hashlib
import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ropewalk.data.json_lines import decode_text
from ropewalk.data.source import Document, InputFile, OnBytes, Source

LOCAL_BYTES = 4 << 20  # few enough to prepare in seconds


class Local(Source):
    """The source code of this Python's standard library, a few megabytes."""

    differs_by_machine = True
    held_out_every = 4  # perplexity needs 50 documents and 100,000 tokens of this small source

    @property
    def files(self) -> list[InputFile]:
        """Files of the standard library."""
        return local_files()

    def read_file(self, file: int, line: int, on_bytes: OnBytes) -> Iterator[Document]:
        """Yield the text of the file as one document."""
        if line == 1:
            on_bytes(self.files[file].size)
            text, problem = decode_text(self.files[file].path.read_bytes())
            yield Document("" if problem else text, file, 1, problem=problem)

    def identity(self) -> dict[str, Any]:
        """Return the number of `held_out_every`."""
        return {"one_in": self.held_out_every}


@functools.cache  # walking over all installed files takes a second
def local_files() -> list[InputFile]:
    """Return the files of a fixed sample of the standard library, `LOCAL_BYTES` at most.

    Raises:
      ValueError: if this Python comes without the source code of its library.
    """
    root = Path(sysconfig.get_path("stdlib"))
    skipped = {"site-packages", "dist-packages", "test", "tests", "idle_test", "lib2to3"}
    paths = []
    for folder, folders, names in os.walk(root):
        folders[:] = set(folders) - skipped  # os.walk does not descend into removed names
        paths += [Path(folder, name) for name in names if name.endswith(".py")]
    paths.sort()
    # The order of hashes samples the whole library, not only the first letters.
    paths.sort(key=lambda p: hashlib.sha256(p.relative_to(root).as_posix().encode()).digest())
    chosen, total = [], 0
    for path in paths:
        content = path.read_bytes()
        if total + len(content) <= LOCAL_BYTES and not decode_text(content)[1]:
            total += len(content)
            name = path.relative_to(root).as_posix()
            digest = hashlib.sha256(content).hexdigest()
            chosen.append(InputFile(path=path, name=name, size=len(content), sha256=digest))
    if not chosen:
        raise ValueError(
            f"{root}: no .py files; this Python has no library source, use --source jsonl"
        )
    return sorted(chosen, key=lambda file: file.name)
