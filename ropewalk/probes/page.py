"""The page of the probes' results, and their findings: for each number, its range over runs."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from ropewalk.probes.probe import ByLabel, Probe, format_number, list_findings
from ropewalk.reporting import overview, page
from ropewalk.reporting.members import Member
from ropewalk.reporting.page import Commands, Drawing, Folded, Item, Table
from ropewalk.utils.messages import counted


def write(
    results: Mapping[type[Probe], ByLabel], members: Sequence[Member], out: Path, command: str
) -> None:
    """Write the page `out`, and its figures next to it as PNG and SVG.

    `command` is the command line to show.
    """
    variables = overview.describe(members) | {
        "questions": ["Attention analysis"],
        "summary": page.format_list(list_findings(results)),
    }
    page.write(out, _items(results, members, command), **variables)


def _items(
    results: Mapping[type[Probe], ByLabel], members: Sequence[Member], command: str
) -> Iterator[Item]:
    series = {member.label: member for member in members}
    for order, (probe, by_label) in enumerate(results.items()):
        captions = {"alternative": probe.title, "caption": " ".join(probe.caption.split())}
        drawing = Drawing(probe.name(), partial(probe.plot, by_label, series), captions)
        yield ("" if order == 0 else probe.title), "", drawing
        title = probe.title if order else "Numbers"
        numbers, details = [], []
        for label, seeds in by_label.items():
            index, name = series[label].index, {"member": label}
            cells = [seed.numbers() for seed in seeds]
            texts = {key: format_number([cell[key] for cell in cells]) for key in cells[0]}
            numbers.append((index, name | texts))
            for number, seed in enumerate(seeds):
                seed_name = {"seed": str(number)} if seeds[1:] else {}
                details += [(index, name | seed_name | line) for line in seed.lines()]
        yield title, "", Table.from_cells(numbers)
        if details:
            summary = f"Details: {counted(len(details), 'lines')}"
            yield title, "", Folded(summary=summary, part=Table.from_cells(details))
    yield "Command", "", Commands(lines=[("", command)])
