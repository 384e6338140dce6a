"""Readers of the small files of runs and sweeps. A malformed file is refused in one line."""

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

from ropewalk.utils.checks import SINGLE_MAX, Bounds, check, problem
from ropewalk.utils.limits import parse_json, read_json, read_lines
from ropewalk.utils.manifest import seal, unseal
from ropewalk.utils.messages import counted, print_note, quoted


def read_json_lines(path: Path, kinds: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the objects of a JSON-lines file; none if it does not exist.

    A last line cut short by a crash is left out; any other broken line is an error.

    Args:
      path: of the file.
      kinds: type hints of the required fields of each object, by name.

    Raises:
      ValueError: naming the file and the malformed line.
    """
    if not path.exists():
        return []
    rows = []
    for number, line in enumerate(read_lines(path), start=1):
        try:
            row = parse_json(line)
        except ValueError as error:
            # A writer that was killed leaves half a line, and only at the end.
            if not line.endswith(b"\n"):
                break
            raise ValueError(f"{path}:{number}: {error}; delete that line") from error
        if wrong := row_problem(row, kinds):
            raise ValueError(f"{path}:{number}: {wrong}; delete that line")
        rows.append(row)
    return rows


def row_problem(row: Any, kinds: Mapping[str, Any]) -> str:
    """Describe what is wrong with the JSON value of a line; empty if nothing is."""
    if not isinstance(row, dict):
        return f"a row is a JSON object, got {quoted(row)}"
    for name, kind in kinds.items():
        if name not in row:
            return f"lacks {name!r}"
        if wrong := problem(row[name], kind):
            return f"{name} must be {wrong}"
    return ""


# Type hints of the fields of a row of metrics.jsonl that readers rely on.
_LOSS = Annotated[float, Bounds(at_least=-SINGLE_MAX, at_most=SINGLE_MAX)] | None
METRICS = {"step": int, "tokens": int, "loss": _LOSS}

# Fields of a row that depend on the machine and its load, not on the run.
_CLOCK = {"seconds", "tokens_per_second", "mfu"}


class MetricsDigest:
    """Running digest of the rows of metrics.jsonl: their number and the sha256 of their JSON.

    Fields that depend on the clock are left out, so rows that a resumed run logs again digest to
    the same.
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]] = ()):
        """Digest `rows`."""
        self._rows, self._sha256 = 0, hashlib.sha256()
        for row in rows:
            self.add(row)

    def add(self, row: Mapping[str, Any]) -> None:
        """Digest one more row."""
        values = {name: value for name, value in row.items() if name not in _CLOCK}
        self._sha256.update(json.dumps(values, sort_keys=True).encode())
        self._rows += 1

    def record(self) -> dict[str, Any]:
        """Return the digest as a checkpoint keeps it."""
        return {"rows": self._rows, "sha256": self._sha256.hexdigest()}

    def difference(self, record: Mapping[str, Any]) -> str:
        """Return how these rows differ from those that were logged, in words; empty if equal."""
        if self._rows != record["rows"]:
            return f"has {counted(self._rows, 'rows')}, and {record['rows']} were logged"
        is_equal = self.record()["sha256"] == record["sha256"]
        return "" if is_equal else "has other rows than were logged"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepRecord:
    """The content of sweep.json.

    Attributes:
      config: name of the config.
      overrides: overrides as typed.
      members: names of their directories, in order.
      configs: `config_digest` of each member without tokenizer; empty in older files.
    """

    config: str
    overrides: tuple[str, ...]
    members: tuple[str, ...]
    configs: tuple[str, ...] = ()

    def __post_init__(self):
        check(self)
        # A file that came with somebody's runs must not lead out of its directory.
        for name in self.members:
            plain = name.isprintable() and not re.search(r"/|^\.*$", name)
            if not plain or len(name.encode()) > 255:
                raise ValueError(f"members must be names of directories in it, got {quoted(name)}")
        if not self.members or len(set(self.members)) < len(self.members):
            raise ValueError(f"members must be different names, got {quoted(self.members)}")

    def to_json(self) -> str:
        """Return the content of the file, which has its own digest."""
        return json.dumps(seal(dataclasses.asdict(self)), indent=2) + "\n"


def read_sweep(path: Path) -> SweepRecord:
    """Read sweep.json of a sweep directory.

    Raises:
      ValueError: if it is not a `SweepRecord`, or not what was written.
    """
    file = path / "sweep.json"
    try:
        record = read_json(file)
        if "sha256" not in record:
            print_note(None, f"{file}: no digest (an older file); changes cannot be noticed")
        elif not unseal(record):
            raise ValueError("not what was written")
        fields = {name: record[name] for name in ("config", "overrides", "members")}
        return SweepRecord(**fields, configs=record.get("configs", ()))
    except (KeyError, TypeError, ValueError) as error:
        reason = error if isinstance(error, ValueError) else "no JSON object with all its fields"
        hint = "delete it and run the same sweep.py command again: members are kept"
        raise ValueError(f"{file}: {reason}; {hint}") from error
