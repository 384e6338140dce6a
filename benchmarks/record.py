"""A figure, where it was taken, and how both are written down.

A figure is a ratio of two things that took turns in one process, since machines differ by a factor
of four between days; what was measured to get it stands beside it.
"""

import dataclasses
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """One figure.

    Attributes:
      name: of what.
      ratio: what is divided by what.
      least: of the fastest runs of both.
      median: of the ratios of all rounds; what a goal is held against.
      at_least, at_most: the goal; none where neither is given.
      measured: what was seen on the way, by name with its unit ("tokens/s").
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
        """Whether the goal is met, which NaN never does; None where there is none."""
        bounds = [
            self.median >= bound if lower else self.median <= bound
            for bound, lower in ((self.at_least, True), (self.at_most, False))
            if bound is not None
        ]
        return all(bounds) if bounds else None

    @property
    def goal(self) -> str:
        """In words; empty where there is none."""
        bounds = (("at least", self.at_least), ("at most", self.at_most))
        return ", ".join(f"{word} {bound:.3g}" for word, bound in bounds if bound is not None)

    @classmethod
    def of_seconds(
        cls,
        name: str,
        ratio: str,
        over: Sequence[float],
        under: Sequence[float],
        times: float = 1.0,
        **more: Any,
    ) -> "Result":
        """From seconds of rounds in which both took turns.

        Args:
          name, ratio: as of the figure.
          over, under: seconds of what is divided, and of what it is divided by, by round.
          times: a factor of the ratio: one amount of work over another.
          more: other fields.
        """
        ratios = [a / b for a, b in zip(over, under, strict=True)]
        least, median = min(over) / min(under), statistics.median(ratios)
        return cls(name=name, ratio=ratio, least=times * least, median=times * median, **more)

    def to_dict(self) -> dict[str, Any]:
        """As JSON values of four digits, with the verdict beside the goal."""
        fields = dataclasses.asdict(self)
        numbers = {name: _rounded(fields[name]) for name in ("least", "median")}
        measured = {name: _rounded(value) for name, value in self.measured.items()}
        return {**fields, **numbers, "measured": measured, "met": self.met}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Taken:
    """Figures of one command, and where they were taken.

    Attributes:
      command: what to type to take them again.
      date: of the day, ISO 8601.
      commit: of the code.
      device: of the machine (`benchmarks.machine.device`).
      versions: of what computes.
      load: jobs that ran beside it when it began, as the kernel counts them over a minute.
      dry_run: what is wrong with these figures, or nothing.
      results: the figures.
      notes: what else is to be said, one line each.
      seconds: that it took.
      complete: False of a piece that was stopped.
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
        """Writes it as JSON, whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        fields = {**vars(self), "results": [result.to_dict() for result in self.results]}
        part = path.with_name(path.name + ".part")
        part.write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")
        part.replace(path)

    @classmethod
    def read(cls, path: Path) -> "Taken":
        """The inverse of `write`."""
        fields = json.loads(path.read_text(encoding="utf-8"))
        fields |= {"results": tuple(_result(one) for one in fields["results"])}
        return cls(**{**fields, "notes": tuple(fields["notes"])})


def _rounded(value: float) -> float | None:
    # JSON has no NaN.
    return float(f"{value:.4g}") if math.isfinite(value) else None


def _result(fields: dict[str, Any]) -> Result:
    numbers = {name: fields[name] for name in ("least", "median")}
    known: dict[str, Any] = {
        name: math.nan if value is None else value for name, value in numbers.items()
    }
    return Result(**{name: x for name, x in (fields | known).items() if name != "met"})


HEADER = ("figure", "least / median", "of what", "goal", "measured")


def cells(result: Result) -> tuple[str, ...]:
    """A row of the table."""
    verdict = {None: "", True: ": met", False: ": **missed**"}[result.met]
    measured = ", ".join(f"{shown(value)} {name}" for name, value in result.measured.items())
    numbers = f"{result.least:.3g} / {result.median:.3g}"
    return result.name, numbers, result.ratio, result.goal + verdict, measured


def shown(value: float) -> str:
    """Three digits, thousands apart."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def table(taken: Taken) -> Table:
    """For a terminal."""
    title = f"python -m benchmarks {taken.command}" + (f"  ({taken.dry_run})" * bool(taken.dry_run))
    made = Table(*HEADER, title=title, box=box.SIMPLE, title_justify="left")
    for result in taken.results:
        name, numbers, ratio, goal, measured = cells(result)
        style = {None: "", True: "green", False: "red"}[result.met]
        made.add_row(name, numbers, ratio, f"[{style}]{goal}[/]" if style else goal, measured)
    return made


def markdown(pieces: Sequence[Taken]) -> str:
    """For a document: where and when, a table, notes; of pieces taken on one machine."""
    first = pieces[0]
    device = ", ".join(
        f"{value:g} {name}" if isinstance(value, float | int) else str(value)
        for name, value in first.device.items()
    )
    versions = ", ".join(f"{name} {version}" for name, version in first.versions.items())
    load = max(piece.load for piece in pieces)
    dates = sorted({piece.date for piece in pieces})
    commits = dict.fromkeys(piece.commit for piece in pieces)
    lines = [
        f"{device}. {versions}. {' to '.join(dict.fromkeys((dates[0], dates[-1])))}, commit "
        f"{', '.join(commits)}; other jobs at the start: {load:.1f} at most."
    ]
    lines += [f"**{said}**" for said in dict.fromkeys(piece.dry_run for piece in pieces) if said]
    for piece in pieces:
        lines += ["", f"`python -m benchmarks {piece.command}` ({piece.seconds:.0f} s)", ""]
        if piece.results:
            lines += [_row(HEADER), _row(["---"] * len(HEADER))]
            lines += [_row(cells(result)) for result in piece.results]
        lines += ["", *(f"- {note}" for note in piece.notes)] if piece.notes else []
    return "\n".join(lines) + "\n"


def _row(parts: Sequence[str]) -> str:
    return f"| {' | '.join(part.replace('|', '/') for part in parts)} |"
