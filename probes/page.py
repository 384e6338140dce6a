"""The page of the probes' results: figures, numbers over seeds, and tables of heads."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from probes.findings import list_findings
from probes.probe import Number, Probe, format_number
from reporting import overview, page
from reporting.members import Member
from reporting.page import Commands, Drawing, Folded, Item, Table
from reporting.writing import provenance

# Results of a probe: measurements of each member's seeds, by the member's label.
ByLabel = Mapping[str, Sequence[Probe]]


def write(
    results: Mapping[type[Probe], ByLabel], members: Sequence[Member], out: Path, command: str
) -> None:
    """Write the page `out`, and its figures next to it as PNG and SVG.

    `command` is the command line to show.
    """
    page.write(
        out,
        _items(results, members, command),
        looks=[member.look for member in members],
        names=sorted({member.config.name for member in members}),
        facts=overview.facts(members),
        questions=["Attention analysis"],
        summary=page.format_list(list_findings(results)),
        provenance=provenance(members),
    )


def _items(
    results: Mapping[type[Probe], ByLabel], members: Sequence[Member], command: str
) -> Iterator[Item]:
    series = {member.label: member for member in members}
    for order, (probe, by_label) in enumerate(results.items()):
        captions = {"alternative": probe.title, "caption": " ".join(probe.caption.split())}
        drawing = Drawing(probe.name(), partial(probe.plot, by_label, series), captions)
        yield ("" if order == 0 else probe.title), "", drawing
        title = probe.title if order else "Numbers"
        numbers = [
            (
                series[label].index,
                {"member": label} | _format_numbers([seed.numbers() for seed in seeds]),
            )
            for label, seeds in by_label.items()
        ]
        yield title, "", Table.from_cells(numbers)
        lines = [
            (
                series[label].index,
                {"member": label} | ({"seed": str(number)} if seeds[1:] else {}) | line,
            )
            for label, seeds in by_label.items()
            for number, seed in enumerate(seeds)
            for line in seed.lines()
        ]
        if lines:
            table = Table.from_cells(lines)
            yield title, "", Folded(summary=f"Details: {len(lines)} lines", part=table)
    yield "Command", "", Commands(lines=[("", command)])


def _format_numbers(seeds: Sequence[Mapping[str, Number]]) -> dict[str, str]:
    return {name: format_number([numbers[name] for numbers in seeds]) for name in seeds[0]}
