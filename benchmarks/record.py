"""Results and records of benchmarks: JSON files and Markdown tables.

A result is a ratio of two things that alternated in one process, because the speed of a machine
varies by a factor of four between days.
"""

import dataclasses
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from utils.files import write_atomically


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """One ratio and its goal.

    Attributes:
      name: what was measured.
      ratio: description of numerator and denominator.
      least: ratio of the fastest runs.
      median: median of the ratios of all rounds; the goal applies to it.
      at_least, at_most: the goal; None without one.
      measured: values behind the ratio, by name with unit ("tokens/s").
    """

    name: str
    ratio: str
    least: float
    median: float
    at_least: float | None = None
    at_most: float | None = None
    measured: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @property
    def met(self) -> bool | None:
        """True if the median meets the goal (NaN never does); None without a goal."""
        if self.at_least is None and self.at_most is None:
            return None
        low = -math.inf if self.at_least is None else self.at_least
        high = math.inf if self.at_most is None else self.at_most
        return low <= self.median <= high

    @property
    def goal(self) -> str:
        """The goal as text; empty without one."""
        bounds = (("at least", self.at_least), ("at most", self.at_most))
        return ", ".join(f"{name} {bound:.3g}" for name, bound in bounds if bound is not None)

    @classmethod
    def from_ratio(cls, name: str, ratio: str, value: float, **fields: Any) -> "Result":
        """Return a result of one measurement: `least` and `median` are the same."""
        return cls(name=name, ratio=ratio, least=value, median=value, **fields)

    @classmethod
    def from_seconds(
        cls,
        name: str,
        ratio: str,
        seconds: Mapping[str, Sequence[float]],
        factor: float = 1.0,
        **fields: Any,
    ) -> "Result":
        """Return the ratio of two things that alternated.

        Args:
          name, ratio: fields of the result.
          seconds: one entry per round, of the numerator first and of the denominator second.
          factor: multiplies the ratio, such as a quotient of amounts of work.
          fields: other fields; `measured` is the milliseconds of the fastest runs by default.
        """
        numerator, denominator, *_ = seconds.values()
        ratios = [a / b for a, b in zip(numerator, denominator, strict=True)]
        return cls(
            name=name,
            ratio=ratio,
            least=factor * min(numerator) / min(denominator),
            median=factor * statistics.median(ratios),
            **{"measured": {f"ms, {key}": 1e3 * min(x) for key, x in seconds.items()}, **fields},
        )

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values with four digits, and `met`."""
        measured = {name: _round(value) for name, value in self.measured.items()}
        rounded = {"least": _round(self.least), "median": _round(self.median), "measured": measured}
        return {**dataclasses.asdict(self), **rounded, "met": self.met}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "Result":
        """Return the result that `to_dict` wrote."""
        fields = {name: value for name, value in fields.items() if name != "met"}
        nan = {name: math.nan for name in ("least", "median") if fields[name] is None}
        return cls(**{**fields, **nan})


def _round(value: float) -> float | None:
    # JSON has no NaN.
    return float(f"{value:.4g}") if math.isfinite(value) else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record:
    """Results of one benchmark and the conditions under which they were measured.

    Attributes:
      command: arguments of `python -m benchmarks` that repeat it.
      date: ISO 8601.
      commit: of the code (`utils.git`).
      device: the machine (`machine.describe`).
      versions: of the packages that compute (`machine.versions`).
      load: average load of the last minute when it started.
      dry_run: warning for a dry run, else empty.
      results: the ratios.
      notes: further messages, one line each.
      seconds: duration.
      complete: False if the benchmark was stopped.
    """

    command: str
    date: str
    commit: str
    device: Mapping[str, Any]
    versions: Mapping[str, str]
    load: float
    dry_run: str = ""
    results: tuple[Result, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    complete: bool = False

    def write(self, path: Path) -> None:
        """Write the record as JSON, atomically."""
        path.parent.mkdir(parents=True, exist_ok=True)
        fields = {**vars(self), "results": [result.to_dict() for result in self.results]}
        write_atomically(path, json.dumps(fields, indent=2) + "\n")

    @classmethod
    def read(cls, path: Path) -> "Record":
        """Return the record that `write` wrote."""
        fields = json.loads(path.read_text(encoding="utf-8"))
        results = tuple(map(Result.from_dict, fields["results"]))
        return cls(**{**fields, "results": results, "notes": tuple(fields["notes"])})


HEADER = ("figure", "least / median", "of what", "goal", "measured")


def cells(result: Result) -> tuple[str, ...]:
    """Return a row of the table, in the order of HEADER."""
    verdict = {None: "", True: ": met", False: ": **missed**"}[result.met]
    measured = ", ".join(f"{format_value(value)} {name}" for name, value in result.measured.items())
    ratios = f"{result.least:.3g} / {result.median:.3g}"
    return result.name, ratios, result.ratio, result.goal + verdict, measured


def format_value(value: float) -> str:
    """Return three digits, or an integer with commas from 100 on."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def markdown(records: Sequence[Record]) -> str:
    """Return the records of one machine for a document: the conditions, tables and notes."""
    first = records[0]
    device = ", ".join(
        f"{value:g} {name}" if isinstance(value, float | int) else str(value)
        for name, value in first.device.items()
    )
    versions = ", ".join(f"{name} {version}" for name, version in first.versions.items())
    load = max(record.load for record in records)
    dates = sorted({record.date for record in records})
    commits = dict.fromkeys(record.commit for record in records)
    lines = [
        f"{device}. {versions}. {' to '.join(dict.fromkeys((dates[0], dates[-1])))}, commit "
        f"{', '.join(commits)}; other jobs at the start: {load:.1f} at most."
    ]
    lines += [f"**{text}**" for text in dict.fromkeys(r.dry_run for r in records) if text]
    for record in records:
        lines += ["", f"`python -m benchmarks {record.command}` ({record.seconds:.0f} s)", ""]
        if record.results:
            lines += [_row(HEADER), _row(["---"] * len(HEADER))]
            lines += [_row(cells(result)) for result in record.results]
        lines += ["", *(f"- {note}" for note in record.notes)] if record.notes else []
    return "\n".join(lines) + "\n"


def _row(parts: Sequence[str]) -> str:
    return f"| {' | '.join(part.replace('|', '/') for part in parts)} |"
