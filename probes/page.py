"""The page of the probes' results, and their findings: for each number, its range over runs."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from ropewalk.probes.probe import Number, Probe, format_number
from ropewalk.reporting import overview, page
from ropewalk.reporting.members import Member
from ropewalk.reporting.page import Commands, Drawing, Folded, Item, Table
from ropewalk.utils.messages import printable

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
        questions=["Attention analysis"],
        summary=page.format_list(list_findings(results)),
        **overview.describe(members),
    )


def list_findings(results: Mapping[type[Probe], ByLabel]) -> list[str]:
    """Return one line per number: its range over members, and the heads that attain it."""
    return [line for by_label in results.values() for line in _findings(by_label)]


def format_findings(findings: Sequence[str], width: int) -> str:
    """Return findings for a terminal; further lines of one are indented."""
    lines = (textwrap.fill(line, width, subsequent_indent="  ") for line in findings)
    return printable("\n".join(lines))


def _findings(by_label: ByLabel) -> Iterator[str]:
    first = next(iter(by_label.values()))[0]
    for name in first.numbers():
        numbers = {label: [seed.numbers()[name] for seed in by_label[label]] for label in by_label}
        means = {
            label: float(np.mean([number.value for number in seeds]))
            for label, seeds in numbers.items()
        }
        known = {label: mean for label, mean in means.items() if not np.isnan(mean)}
        if not known:
            continue
        ends = dict.fromkeys([min(known, key=known.__getitem__), max(known, key=known.__getitem__)])
        if len(set(known.values())) == 1:
            ends = dict.fromkeys([next(iter(known))])
        texts = []
        for label in ends:
            head = by_label[label][0].heads_of().get(name, "")
            subject = ", ".join(filter(None, [label, head and f"head {head}"]))
            if len(ends) == 1 < len(known):
                subject = "all members"
            texts.append(f"{format_number(numbers[label])} ({subject})")
        yield f"{name}: {' to '.join(texts)}"


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
