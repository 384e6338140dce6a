"""What probes found in some members, as one page: figures, numbers over seeds, a table of heads."""

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
from scipy import special

from probes.probe import Number, Probe
from reporting import overview
from reporting.looks import STYLE
from reporting.members import Member
from reporting.page import Commands, Folded, Section, Table, render
from reporting.pictures import Drawing, save
from reporting.writing import provenance

# By probe, then by member's label, what was found in each of its seeds.
Found = Mapping[type[Probe], Mapping[str, Sequence[Probe]]]


def write(found: Found, members: Sequence[Member], out: Path, command: str) -> None:
    """Writes the page `out`, its figures beside it as PNG and SVG; `command` is what does it."""
    matplotlib.use("Agg")  # a page needs no display
    out.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(STYLE):
        sections = [_section(probe, by_label, members, out) for probe, by_label in found.items()]
    lead, *rest = sections[0].parts
    page = render(
        names=sorted({member.config.name for member in members}),
        facts=overview.facts(members),
        questions=["What goes on inside"],
        opening=sections[0].title + ".",
        findings=[],
        lead=lead,
        missing=Commands(lines=[]),
        sections=[
            Section(title="In numbers", parts=rest),
            *sections[1:],
            Section(title="How to repeat it", parts=[Commands(lines=[("", command)])]),
        ],
        provenance=provenance(members),
        looks=[member.look for member in members],
    )
    out.write_text(page, encoding="utf-8", errors="replace")


def _section(
    probe: type[Probe],
    by_label: Mapping[str, Sequence[Probe]],
    members: Sequence[Member],
    out: Path,
) -> Section:
    words = {"alternative": probe.title, "caption": " ".join(probe.caption.split())}
    drawing = Drawing(probe.name(), probe.plot(by_label), words)
    index = {member.label: member.index for member in members}
    numbers = [
        (index[label], {"member": label} | _over_seeds([each.numbers() for each in seeds]))
        for label, seeds in by_label.items()
    ]
    parts = [save(drawing, out, members), Table.from_cells(numbers)]
    lines = [
        (index[label], {"member": label} | _seed(place, seeds) | line)
        for label, seeds in by_label.items()
        for place, each in enumerate(seeds)
        for line in each.lines()
    ]
    if lines:
        parts.append(Folded(summary=f"In detail: {len(lines)} lines", part=Table.from_cells(lines)))
    return Section(title=probe.title, parts=parts)


def _seed(place: int, seeds: Sequence[Probe]) -> dict[str, str]:
    return {"seed": str(place)} if len(seeds) > 1 else {}


def _over_seeds(numbers: Sequence[Mapping[str, Number]]) -> dict[str, str]:
    """Each with its interval: over documents of one seed, over the seeds of several."""
    return {name: said([each[name] for each in numbers]) for name in numbers[0]}


def said(seeds: Sequence[Number]) -> str:
    """One number in words: of several seeds the mean, with Student's interval."""
    values = [each.value for each in seeds]
    if len(values) == 1:
        ((value, low, high),) = seeds
    elif all(map(math.isfinite, values)):
        num = len(values)
        value = math.fsum(values) / num
        half = special.stdtrit(num - 1, 0.975) * statistics.stdev(values) / math.sqrt(num)
        low, high = value - half, value + half
    else:  # there is no mean of numbers and "beyond"
        return " / ".join(map(_number, values))
    if math.isnan(low) or low == value == high:
        return _number(value)
    return f"{_number(value)} [{_number(low)}, {'∞' if math.isinf(high) else _number(high)}]"


def _number(value: float) -> str:
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "none"
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:,.0f}"
