"""Input files of a source: which files of a folder are read, and which of them are held out.

The name of a file, or else the innermost of its folders whose name does, decides the split:

    dev.jsonl  corpus_val-00000-of-00010.jsonl.gz  test/part_1.jsonl     held out
    val_speeches.jsonl  test_questions.jsonl                             words of a subject: not
    valid.en.jsonl                                                       if there is train.en.jsonl

Hidden files and folders are left out. Linked folders are read, each once.
"""

import os
import re
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from ropewalk.data.json_lines import PATTERNS, first_record, stem_of, without_compression
from ropewalk.data.source import InputFile, LeftOut
from ropewalk.utils.messages import one_line
from ropewalk.utils.paths import as_path, in_bucket

# Names of splits in the `datasets` library (huggingface.co/docs/datasets/repository_structure);
# SlimPajama has "holdout".
_HELD_OUT = {"validation", "valid", "dev", "val", "test", "testing", "eval", "evaluation"}
_HELD_OUT |= {"heldout", "holdout"}
_TRAIN = {"train", "training"}
_UNINFORMATIVE = {"", "of", "part", "shard", "chunk", "split", "set", "file", "data"}
_HASH = re.compile(r"(?=.*\d)[0-9a-f]{4,}")


class Listing(NamedTuple):
    """Files in order, and the entries that are left out."""

    files: list[InputFile]
    left_out: list[LeftOut]


def list_json_lines(path: str | Path) -> Listing:
    """Return the JSON Lines files at `path`, a file or a folder, by name.

    Raises:
      ValueError: if there is none, a link is broken, a folder cannot be read, or a file is there
        twice, compressed and not.
    """
    root = as_path(path)
    if root.is_file():
        if stem_of(root.name) is None:
            raise ValueError(f"{root}: not one of {PATTERNS}")
        return Listing([InputFile(path=root, name=root.name, size=root.stat().st_size)], [])
    if not root.is_dir():
        raise ValueError(f"{root}: no such file or folder")
    try:
        paths, left_out = _walk(root)
    except PermissionError as error:
        raise ValueError(f"{error.filename}: no permission to read it; change its mode") from None
    stems = {}
    for name, file in paths.items():
        if (stem := stem_of(name)) is None:
            left_out.append(LeftOut(name, "not JSON Lines"))
        elif re.search(r"\.json(\.|$)", name, re.IGNORECASE) and "text" not in first_record(file):
            left_out.append(LeftOut(name, 'not JSON Lines: no "text" in the first line'))
        else:
            stems[name] = stem
    if not stems:
        raise ValueError(
            f"{root}: folder holds none of {PATTERNS}{'; ' * bool(left_out)}"
            + "; ".join(describe_left_out(left_out))
        )
    _refuse_copies(root, stems)
    held_out = _held_out(stems)
    if len(held_out) == len(stems):
        held_out = set()
    return Listing(
        [
            InputFile(
                path=paths[name],
                name=name,
                size=paths[name].stat().st_size,
                validation=name in held_out,
            )
            for name in stems
        ],
        left_out,
    )


def _walk(root: Path) -> tuple[dict[str, Path], list[LeftOut]]:
    """Return the regular files below a folder by relative name, in order, and what is left out.

    A folder or file that several names lead to has the name without links, or else the first.
    """
    if in_bucket(root):  # has no links
        objects = {path.relative_to(root).as_posix(): path for path in root.rglob("*")}
        hidden = {name for name in objects if re.search(r"(^|/)\.", name)}
        objects = {name: objects[name] for name in sorted(objects.keys() - hidden)}
        return objects, [LeftOut(name, "hidden") for name in sorted(hidden)]
    files: dict[str, Path] = {}
    left_out: list[LeftOut] = []
    names: dict[str, str] = {}  # relative names by real path
    queue = deque([root])  # links come last
    while queue:
        path = queue.popleft()
        is_folder = path.is_dir()
        name = path.relative_to(root).as_posix() + "/" * is_folder
        real = os.path.realpath(path)
        if path != root and path.name.startswith("."):
            left_out.append(LeftOut(name, "hidden"))
        elif not path.exists():
            raise ValueError(
                f"{path}: the target of this link is missing ({os.readlink(path)}); mount or "
                "download it, or delete the link"
            )
        elif path.is_symlink() and Path(os.path.realpath(path.parent)).is_relative_to(real):
            left_out.append(LeftOut(name, "links to a folder around it"))
        elif real in names:
            left_out.append(LeftOut(name, f"links to {names[real]}, which is read"))
        elif is_folder:
            names[real] = name
            entries = sorted(path.iterdir())
            queue.extendleft(entry for entry in entries if not entry.is_symlink())
            queue.extend(entry for entry in entries if entry.is_symlink())
        elif path.is_file():
            files[name] = path
            names[real] = name
        else:
            left_out.append(LeftOut(name, "not a regular file"))
    return dict(sorted(files.items())), sorted(left_out)


def _refuse_copies(root: Path, names: Iterable[str]) -> None:
    """Raise ValueError if a file is there twice, as gzip --keep leaves it."""
    by_name: dict[str, str] = {}
    for name in names:
        other = by_name.setdefault(without_compression(name), name)
        if other != name:
            raise ValueError(
                f"{root}: {other} and {name} are one file, compressed and not; move one away"
            )


def _held_out(stems: dict[str, str]) -> set[str]:
    """Return the names of held-out files.

    Args:
      stems: relative names without suffixes, by relative name.
    """
    terms = {name: list(map(_words, re.split(r"[\\/]", stem))) for name, stem in stems.items()}
    # The other terms of the files of training: `valid.en` is held out beside `train.en`.
    of_training = {
        tuple(word for word in stem_terms if word not in _TRAIN)
        for *_, stem_terms in terms.values()
        if not _TRAIN.isdisjoint(stem_terms)
    }
    held_out = set()
    for name, (*folders, stem_terms) in terms.items():
        rest = tuple(word for word in stem_terms if word not in _HELD_OUT)
        is_paired = len(rest) < len(stem_terms) and rest in of_training
        last = [part[-1] for part in (*folders, stem_terms) if part]
        marks = [word for word in last if word in _HELD_OUT | _TRAIN]
        if is_paired or (marks and marks[-1] in _HELD_OUT):
            held_out.add(name)
    return held_out


def _words(name: str) -> list[str]:
    """Return the terms of a name in lower case, without numbers, hashes and terms like "part"."""
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()
    name = re.sub(r"h[eo]ld[^a-z0-9]?out", "heldout", name)
    terms = (word for word in re.split(r"[^a-z0-9]+", name) if not _HASH.fullmatch(word))
    terms = (re.sub(r"((set|split)s?)?\d*$", "", word) for word in terms)
    return [word for word in terms if word not in _UNINFORMATIVE]


def describe_files(files: Sequence[InputFile], left_out: Sequence[LeftOut]) -> list[str]:
    """Return one line per split that has files, and one per reason of what is left out."""
    lines = []
    for split in ("train", "validation"):
        chosen = [file for file in files if file.validation == (split == "validation")]
        if chosen:
            size = sum(file.size for file in chosen)
            names = _shorten([file.name for file in chosen])
            plural = "" if len(chosen) == 1 else "s"
            lines.append(f"{split}: {len(chosen)} file{plural}, {size:,} bytes: {names}")
    return lines + describe_left_out(left_out)


def describe_left_out(left_out: Sequence[LeftOut]) -> list[str]:
    """Return one line per reason."""
    names = defaultdict(list)
    for name, reason in left_out:
        names[reason].append(name)
    return [f"left out: {_shorten(names[reason])} ({reason})" for reason in names]


def _shorten(names: Sequence[str], limit: int = 8) -> str:
    names = [one_line(name, 80) for name in names]
    if len(names) <= limit:
        return ", ".join(names)
    return f"{', '.join(names[: limit - 1])} ... {names[-1]} ({len(names)} in all)"
