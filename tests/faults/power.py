"""A disk that loses power: replay a log of calls, and drop what was not synced."""

from pathlib import Path
from typing import NamedTuple

# Of what was not synced: nothing is lost; contents are lost and names are kept, as on ext4 with
# delayed allocation; names since the last sync are lost too.
POLICIES = "nothing lost", "contents lost", "contents and names lost"
_CREATE, _TRUNCATE = 0o100, 0o1000  # flags of open, Linux

Folder = dict[str, bytes | None]  # content of each file, None for folders


class Call(NamedTuple):
    """One logged call; `kind` as in inject.c."""

    kind: int
    path: str
    second: str
    offset: int
    data: bytes


def read_log(path: Path) -> list[Call]:
    """Read the log of inject.c."""
    content, at, calls = path.read_bytes(), 0, []
    while at < len(content):
        end = content.index(b"\n", at)
        kind, name, second, offset, size = content[at:end].decode().split("\t")
        at = end + 1 + int(size)
        calls.append(Call(int(kind), name, second, int(offset), content[end + 1 : at]))
    return calls


def read_folder(folder: Path) -> Folder:
    """Return all files and folders below, by their absolute paths."""
    return {str(p): None if p.is_dir() else p.read_bytes() for p in sorted(folder.rglob("*"))}


def write_folder(folder: Path, files: Folder) -> None:
    """Make a folder contain exactly these files."""
    import shutil

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, content in sorted(files.items()):
        path = Path(name)
        (path if content is None else path.parent).mkdir(parents=True, exist_ok=True)
        if content is not None:
            path.write_bytes(content)


class _File:
    def __init__(self, content: bytes = b"", synced: bytes = b""):
        self.content, self.synced = bytearray(content), synced


def replay(before: Folder, calls: list[Call], policy: str, folder: Path) -> Folder:
    """Return the folder after these calls and a loss of power.

    Args:
      before: the folder before the first call.
      calls: in order.
      policy: one of POLICIES.
      folder: its path.
    """
    names: dict[str, _File | None] = {
        name: None if content is None else _File(content, content)
        for name, content in before.items()
    }
    synced_names = dict(names)
    for call in calls:
        file = names.get(call.path)
        if call.kind == 0 and call.offset & _CREATE and call.path not in names:
            names[call.path] = _File()
        elif call.kind == 0 and call.offset & _TRUNCATE and file:
            file.content.clear()
        elif call.kind == 1 and file:
            file.content.extend(bytes(max(0, call.offset - len(file.content))))
            file.content[call.offset : call.offset + len(call.data)] = call.data
        elif call.kind == 2:  # a journal commits all names with the file
            if file:
                file.synced = bytes(file.content)
            synced_names = dict(names)
        elif call.kind == 3:
            prefix = call.path + "/"
            for name in [n for n in names if n == call.path or n.startswith(prefix)]:
                names[call.second + name[len(call.path) :]] = names.pop(name)
        elif call.kind == 4:
            names[call.path] = None
        elif call.kind == 5:
            names.pop(call.path, None)
    if policy == POLICIES[2]:
        names = synced_names
    lost = policy != POLICIES[0]
    return {
        name: None if file is None else bytes(file.synced if lost else file.content)
        for name, file in names.items()
        if name.startswith(f"{folder}/")
    }
