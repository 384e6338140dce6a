"""The page of the probes' results, and their findings: for each number, its range over runs."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from ropewalk.probes.probe import Probe, format_number
from ropewalk.reporting import overview, page
from ropewalk.reporting.members import Member
from ropewalk.reporting.page import Commands, Drawing, Folded, Item, Table
from ropewalk.utils.messages import counted

# Results of a probe: measurements of each member's seeds, by the member's label.
ByLabel = Mapping[str, Sequence[Probe]]


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


def list_findings(results: Mapping[type[Probe], ByLabel]) -> Iterator[str]:
    """Yield one line per number: its range over members, the heads that attain it, and the rest.

    The rest are members without the number in one of their seeds.
    """
    for by_label in results.values():
        for name in next(iter(by_label.values()))[0].numbers():
            numbers = {
                label: [seed.numbers()[name] for seed in seeds] for label, seeds in by_label.items()
            }
            means = {
                label: np.mean([number.value for number in seeds])
                for label, seeds in numbers.items()
            }
            known = [label for label, mean in means.items() if not np.isnan(mean)]
            # Of equal means, `min` and `max` return the same.
            ends = {end(known, key=means.__getitem__): None for end in (min, max) if known}
            texts = []
            for label in ends:
                # Heads of different seeds have no common order.
                head = "" if numbers[label][1:] else numbers[label][0].head
                attained = f"{label}, head {head}" if head else label
                if len(ends) == 1 < len(known) == len(means):
                    attained = "all members"
                elif len(ends) == 1 < len(known):
                    attained = f"{len(known)} of {len(means)} members"
                texts.append(f"{format_number(numbers[label])} ({attained})")
            rest: dict[str, list[str]] = {}
            for label in (label for label in means if label not in known):
                rest.setdefault(format_number(numbers[label]), []).append(label)
            others = [f"{text} ({', '.join(labels)})" for text, labels in rest.items()]
            yield f"{name}: {'; '.join([' to '.join(texts)] * bool(texts) + others)}"


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
